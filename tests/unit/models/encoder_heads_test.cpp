// Encoders as published models have them: token types, positions that begin later, heads that read the first token or
// predict masked ones; and recurrent tokens in front of the rows of an encoder that a decoder reads.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "core/backbone.h"
#include "models/pair_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models::encoder_heads_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

std::unique_ptr<Model> encoder_with(const std::string& more, const std::string& head) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 7\nscale = false\n[head]\n" + head +
          "\n[backbone]\ntype = \"encoder\"\nnum_layers = 2\ndim = 4\nnum_heads = 2\nffn_dim = 6\nattention = "
          "\"softmax\"\ninit_std = 0.3\n" +
          more,
      "test.toml");
  return build(base::read_options<ModelOptions>(node), 1, at::kDouble);
}

const std::string kMasked = "type = \"masked_language_model\"";
const std::string kFirst = "type = \"classification\"\nnum_classes = 3\npool = \"first\"\npooler = \"gelu\"";

core::StepResult run(const Model& model, const at::Tensor& tokens, const at::Tensor& types = {},
                     const at::Tensor& valid = {}) {
  core::Segment segment;
  segment.tokens = tokens;
  segment.token_types = types;
  segment.valid = valid;
  return model.forward(segment, model.initial_state(tokens.size(0)));
}

TEST(TokenTypes, AreAddedToTheRowsAndAreZeroWithoutThem) {
  const auto model = encoder_with("token_types = 2\nembed_norm = true\n", kMasked);
  const at::Tensor tokens = at::tensor({1, 2, 3, 4}, at::kLong).unsqueeze(0), zeros = at::zeros_like(tokens);
  EXPECT_EQ(difference(run(*model, tokens).hidden, run(*model, tokens, zeros).hidden), 0.0);
  at::Tensor types = zeros.clone();
  types[0][2] = 1;
  // Equal to a table whose rows are exchanged in that place: the embedding of the token moved by their difference.
  const at::Tensor found = run(*model, tokens, types).hidden;
  EXPECT_GT(difference(found, run(*model, tokens).hidden), 1e-3);
  const at::NoGradGuard no_grad;
  const at::Tensor table = model->parameters().find("backbone.token_types.weight");
  at::Tensor words = model->parameters().find("embed.weight");
  words[3] += table[1] - table[0];
  EXPECT_LE(difference(found, run(*model, tokens).hidden), 1e-13);
}

TEST(TokenTypes, NeedATableAndTheSizeOfTheTokens) {
  const at::Tensor tokens = at::ones({1, 3}, at::kLong);
  const auto without = encoder_with("", kMasked), with = encoder_with("token_types = 2\n", kMasked);
  expect_error<base::InputError>([&] { run(*without, tokens, tokens); }, {"token types need a table"});
  expect_error<base::InputError>([&] { run(*with, tokens, tokens + 1); }, {"expected token types 0 to 1, found 2"});
  // Models of other kinds have no table at all.
  ModelOptions decoder;
  decoder.embedding.vocab_size = 8;
  const auto causal = build(decoder);
  expect_error<base::InputError>([&] { run(*causal, tokens, tokens); }, {"token types need a table", "leave them out"});
  ModelOptions stack;
  stack.kind = ModelOptions::Kind::layer_stack;
  core::Segment rows;
  rows.rows = at::zeros({1, 3, stack.backbone.stack().dim});
  rows.token_types = tokens;
  const auto layers = build(stack);
  expect_error<base::InputError>([&] { layers->forward(rows, layers->initial_state(1)); },
                                 {"token types need a table"});
  const auto images = build(base::read_options<ModelOptions>(
      base::parse_toml("[backbone]\ntype = \"vit\"\nimage_size = [8, 8]\npatch_size = 4\ndim = 8\nnum_layers = 1\n"
                       "num_heads = 2\n[head]\ntype = \"classification\"\nnum_classes = 2\n",
                       "test.toml")));
  core::Segment pixels;
  pixels.pixels = at::zeros({1, 3, 8, 8});
  pixels.token_types = tokens;
  expect_error<base::InputError>([&] { images->forward(pixels, images->initial_state(1)); }, {"found token types"});
  expect_error<base::InputError>([&] { run(*with, tokens, tokens.narrow(1, 0, 2)); },
                                 {"token types of the size of the tokens"});
}

TEST(Positions, BeginAtTheirFirst) {
  const auto from = [](const std::string& first) {
    return encoder_with("position = { type = \"learned\", max_len = 6, first = " + first + " }\n", kMasked);
  };
  const auto plain = from("0"), moved = from("2");
  const at::Tensor tokens = at::tensor({1, 2, 3, 4}, at::kLong).unsqueeze(0);
  EXPECT_GT(difference(run(*plain, tokens).hidden, run(*moved, tokens).hidden), 1e-3);
  {
    const at::NoGradGuard no_grad;
    at::Tensor table = plain->parameters().find("backbone.positions.weight");
    table.copy_(table.roll(-2, 0));
  }
  EXPECT_EQ(difference(run(*plain, tokens).hidden, run(*moved, tokens).hidden), 0.0);
  expect_error<base::InputError>(
      [&] {
        run(*moved, at::ones({1, 5}, at::kLong));
      },
      {"5 rows", "max_len = 6 - first = 2"});
  expect_error<base::InputError>([&] { from("6"); }, {"expected first below max_len = 6, found 6"});
}

TEST(MaskedLanguageModel, IsItsFormulaAndIgnoresTokensWithoutATarget) {
  const auto model = encoder_with("", kMasked);
  const at::Tensor tokens = Numbers(1).tokens({2, 4}, 7), h = run(*model, tokens).hidden;
  const auto at = [&](const char* name) { return model->parameters().find(name); };
  const at::Tensor x = at::gelu(at::linear(h, at("head.transform.weight"), at("head.transform.bias")));
  const at::Tensor expected = at::linear(at::layer_norm(x, {4}, at("head.norm.weight"), at("head.norm.bias"), 1e-12),
                                         at("embed.weight"), at("head.bias"));
  EXPECT_LE(difference(model->logits(h), expected), 1e-13);
  at::Tensor targets = tokens.clone();
  targets[0][1] = base::kIgnoreTarget;
  const at::Tensor nll = model->nll(h, targets);
  EXPECT_EQ(nll[0][1].item<double>(), 0.0);
  EXPECT_NEAR(nll[1][2].item<double>(),
              -at::log_softmax(expected, -1)[1][2][tokens[1][2].item<int64_t>()].item<double>(), 1e-12);
}

TEST(MaskedLanguageModel, NeedsAnEncoder) {
  expect_error<base::InputError>(
      [] {
        base::Node node = base::parse_toml(
            "head = { type = \"masked_language_model\" }\n[embedding]\nvocab_size = 7\n[backbone]\ndim = 4\nnum_heads "
            "= "
            "2\n",
            "test.toml");
        build(base::read_options<ModelOptions>(node));
      },
      {"'masked_language_model'", "backbone.type = \"encoder\""});
}

TEST(FirstToken, IsReadThroughThePooler) {
  const auto model = encoder_with("", kFirst);
  EXPECT_FALSE(model->parameters().find("head.cls").defined());
  const at::Tensor tokens = Numbers(1).tokens({2, 4}, 7), h = run(*model, tokens).hidden;
  EXPECT_EQ(h.sizes(), at::IntArrayRef({2, 1, 4}));
  const auto rows = encoder_with("", kMasked);  // the same seed gives the same layers
  EXPECT_EQ(difference(h.squeeze(1), run(*rows, tokens).hidden.select(1, 0)), 0.0);
  const auto at = [&](const char* name) { return model->parameters().find(name); };
  const at::Tensor pooled = at::gelu(at::linear(h, at("head.pooler.weight"), at("head.pooler.bias")));
  EXPECT_LE(difference(model->logits(h), at::linear(pooled, at("head.classifier.weight"), at("head.classifier.bias"))),
            1e-14);
}

std::unique_ptr<PairModel> translator_with(const std::string& memory) {
  base::Node node = base::parse_toml(
      "head = { bias = false }\n[embedding]\nvocab_size = 11\nscale = false\n[backbone]\ntype = \"encoder_decoder\"\n"
      "dim = 8\nnum_heads = 2\nffn_dim = 12\ninit_std = 0.3\nposition = { type = \"none\" }\ndecoder = { num_layers = "
      "1 }\n[backbone.encoder]\nnum_layers = 1\nmemory = [" +
          memory + "]\n",
      "test.toml");
  return build_as<PairModel>(base::read_options<ModelOptions>(node), 1, at::kDouble);
}

core::Segment source_segment(const at::Tensor& tokens, const at::Tensor& valid) {
  core::Segment segment;
  segment.tokens = tokens, segment.valid = valid, segment.mode = core::Mode::evaluate;
  return segment;
}

core::State encoded(const PairModel& model, const at::Tensor& source, const at::Tensor& valid,
                    const core::State& state) {
  return model.source().encode(source_segment(source, valid), state).state;
}

TEST(RecurrentTokensInFront, AreReadByTheDecoderAndCarried) {
  const auto model = translator_with(
      "{ type = \"recurrent_tokens\", layout = \"encoder\", memory_position = \"front\", num_mem_tokens = 2, pad_token "
      "= "
      "1, eos_token = 2 }");
  const at::Tensor source = at::tensor({4, 5, 6, 7, 8, 1}, at::kLong).view({2, 3}),
                   valid = at::tensor({1, 1, 1, 1, 1, 0}).view({2, 3}).to(at::kBool);
  const core::State before = model->initial_state(2).child("source"), after = encoded(*model, source, valid, before);
  const core::EncoderOutput output = SourceSide::output(after);
  EXPECT_EQ(output.rows.sizes(), at::IntArrayRef({2, 6, 8}));  // memory, tokens, eos
  EXPECT_TRUE(at::equal(output.valid, at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}).view({2, 6}).to(at::kBool)));
  const auto memory = [](const core::State& state) {
    for (const auto& [field, tensor] : state.fields()) {
      if (field.path == "encoder.recurrent_tokens.tokens") return tensor;
    }
    return at::Tensor();
  };
  EXPECT_EQ(difference(memory(after), output.rows.narrow(1, 0, 2)), 0.0);
  // A source without tokens keeps its memory and shows nothing.
  const core::State skipped = encoded(*model, source, at::zeros_like(valid), after);
  EXPECT_EQ(difference(memory(skipped), memory(after)), 0.0);
  EXPECT_FALSE(SourceSide::output(skipped).valid.any().item<bool>());
}

TEST(RecurrentTokensInFront, HaveTokensOfTheirOwn) {
  expect_error<base::InputError>(
      [] {
        translator_with(
            "{ type = \"recurrent_tokens\", layout = \"encoder\", memory_position = \"front\", pad_token = 1 }");
      },
      {"eos_token and pad_token belong together"});
  expect_error<base::InputError>(
      [] {
        translator_with(
            "{ type = \"recurrent_tokens\", layout = \"encoder\", memory_position = \"front\", pad_token = 1, "
            "eos_token = "
            "2, cls_token = 3 }");
      },
      {"cls_token", "is not in the block of memory_position = \"front\""});
}

TEST(RecurrentBlockOfATranslation, ShowsTheRowsOfTheTokensAlone) {
  const auto model = translator_with(
      "{ type = \"recurrent_tokens\", layout = \"encoder\", num_mem_tokens = 2, cls_token = 0, sep_token = 3, "
      "pad_token = "
      "1 }");
  const at::Tensor source = at::tensor({4, 5, 6}, at::kLong).unsqueeze(0);
  const core::State before = model->initial_state(1).child("source");
  at::Tensor last;
  const core::State after = model->source()
                                .encode(source_segment(source, {}), before,
                                        [&](std::string_view name, const at::Tensor& rows) {
                                          last = name == "encoder.layers.0" ? rows : last;
                                        })
                                .state;
  ASSERT_EQ(last.size(1), 8);  // [CLS] memory [SEP] tokens [SEP]
  EXPECT_EQ(difference(SourceSide::output(after).rows, last.narrow(1, 4, 3)), 0.0);
}

}  // namespace
}  // namespace mnemo::models::encoder_heads_test
