#include "models/text_model.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <c10/core/InferenceMode.h>

#include <set>

#include "base/error.h"
#include "base/ignore_target.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models {
namespace {

using core::Mode;
using core::Segment;
using test::difference;
using test::expect_error;
using test::Numbers;

ModelOptions options_of(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "[embedding]\nvocab_size = 7\n[backbone]\nnum_layers = 2\ndim = 4\nnum_heads = 2\nffn_dim = 6\n", "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return base::read_options<ModelOptions>(node);
}

std::unique_ptr<TextModel> build_of(const std::vector<std::string>& assignments, uint64_t seed = 1) {
  return build_as<TextModel>(options_of(assignments), seed, at::kDouble);
}

Segment segment_of(const at::Tensor& tokens, core::Part part = {}, Mode mode = Mode::evaluate) {
  Segment segment;
  segment.tokens = tokens;
  segment.part = part;
  segment.mode = mode;
  return segment;
}

TEST(Model, ParametersHaveTheNamesOfTheGoldenFiles) {
  const auto model = build_of({"memory[0].type=recurrent_tokens", "memory[1].type=grc", "backbone.final_norm=true",
                               "backbone.position.type=learned", "backbone.attention.bias=true", "head.tied=false"});
  std::set<std::string> names;
  for (const auto& [name, tensor] : model->parameters().named()) names.insert(name);
  for (const char* name : {"embed.weight", "backbone.u", "backbone.v", "backbone.layers.1.attn.q.weight",
                           "backbone.layers.1.attn.r.weight", "backbone.layers.0.attn.o.bias",
                           "backbone.layers.0.norm1.weight", "backbone.layers.0.ffn.1.bias", "backbone.final_norm.bias",
                           "backbone.positions.weight", "memory.tokens", "head.weight", "head.bias",
                           "backbone.layers.0.attn.grc.reset_gate.weight", "backbone.layers.0.attn.grc.lambda"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("backbone.layers.0.attn.r.bias"));
  EXPECT_FALSE(build_of({})->parameters().find("head.weight").defined()) << "a tied head has no matrix of its own";
}

TEST(Model, FreshParametersDependOnTheSeedAlone) {
  const auto a = build_of({}, 5), b = build_of({}, 5), c = build_of({}, 6);
  for (const auto& [name, tensor] : a->parameters().named())
    EXPECT_TRUE(at::equal(tensor, b->parameters().find(name))) << name;
  EXPECT_FALSE(at::equal(a->parameters().find("embed.weight"), c->parameters().find("embed.weight")));
}

TEST(Model, CommittedCachesAreWhereNewSequencesStart) {
  const auto model = build_of({"memory[0].type=grc", "memory[0].cache_len=2"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 3}, 7);
  const core::State moved = model->forward(segment_of(tokens, {}, Mode::train), model->initial_state(2)).state;
  const auto cache = [](const core::State& state) { return state.fields().front().second; };
  EXPECT_EQ(test::largest(cache(model->initial_state(1))), 0.0) << "nothing moves before it is committed";
  model->commit(moved);
  EXPECT_TRUE(at::equal(cache(model->initial_state(3)), cache(moved)));
  cache(moved).zero_();
  EXPECT_GT(test::largest(cache(model->initial_state(3))), 0.0) << "a committed cache is a copy";
}

TEST(Model, EachStateFieldHasItsOwnDepth) {
  const auto model = build_of({"backbone.attention.type=abc", "backbone.attention.num_slots=2",
                               "backbone.attention.bptt_depth=3", "memory[0].type=grc", "memory[0].cache_len=2",
                               "memory[1].type=recurrent_tokens", "memory[1].block_mask=causal",
                               "memory[1].bptt_depth=2"});
  std::map<std::string, int64_t> found;
  for (const auto& [field, tensor] : model->initial_state(1).fields())
    found[field.path] = model->bptt_depth(field.path);
  EXPECT_EQ(found.at("recurrent_tokens.tokens"), 2);
  EXPECT_EQ(found.at("layers.backbone.layers.0.attn.grc.cache"), 1);
  EXPECT_EQ(found.at("layers.backbone.layers.1.attn.core.k"), 3);
  EXPECT_EQ(found.at("layers.backbone.layers.1.attn.core.z"), 3);
  EXPECT_EQ(build_of({"memory[0].type=segment_cache"})->bptt_depth("segment_cache.layers.0"), 0);
}

TEST(Model, LogitsAndLossAreThoseOfASoftmax) {
  for (const char* tied : {"head.tied=true", "head.tied=false"}) {
    const auto model = build_of({tied});
    const at::NoGradGuard no_grad;
    model->parameters().find("head.bias").copy_(Numbers(3).normal({7}));
    const at::Tensor hidden = Numbers(1).normal({2, 3, 4}), targets = Numbers(2).tokens({2, 3}, 7);
    targets[0][1] = base::kIgnoreTarget;
    const at::Tensor matrix = model->parameters().find(std::string(tied) == "head.tied=true" ? "embed.weight"
                                                                                             : "head.weight");
    const at::Tensor logits = at::matmul(hidden, matrix.t()) + model->parameters().find("head.bias");
    EXPECT_LE(difference(model->logits(hidden), logits), 1e-14);
    const at::Tensor nll = model->nll(hidden, targets), log_p = at::log_softmax(logits, -1);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t t = 0; t < 3; ++t) {
        const auto target = targets[b][t].item<int64_t>();
        EXPECT_NEAR(nll[b][t].item<double>(), target < 0 ? 0.0 : -log_p[b][t][target].item<double>(), 1e-14);
      }
    }
  }
}

TEST(Model, AuxiliaryLossPredictsItsTokenFromEveryWriteRow) {
  const auto model = build_of({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=3",
                               "memory[0].aux_loss.weight=0.25", "memory[0].aux_loss.token=5"});
  const at::NoGradGuard no_grad;
  const auto step = model->forward(segment_of(Numbers(1).tokens({2, 4}, 7)), model->initial_state(2));
  EXPECT_EQ(step.write_hidden.sizes(), at::IntArrayRef({2, 3, 4}));
  EXPECT_TRUE(at::equal(step.write_hidden, step.state.fields().front().second)) << "the write rows are the next memory";
  const auto losses = model->auxiliary_losses(step);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].name, "aux_nll");
  EXPECT_LE(difference(losses[0].values, -at::log_softmax(model->logits(step.write_hidden), -1).select(-1, 5)), 1e-14);
  EXPECT_EQ(losses[0].weight, 0.25);
  const auto open = model->forward(segment_of(Numbers(1).tokens({2, 4}, 7), {true, false}), model->initial_state(2));
  EXPECT_TRUE(model->auxiliary_losses(open).empty());
  EXPECT_TRUE(build_of({})->auxiliary_losses(step).empty());
}

TEST(Model, PositionsThatRunOutAreNamed) {
  const auto model = build_of(
      {"backbone.attention.type=softmax", "backbone.position.type=learned", "backbone.position.max_len=5"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({1, 6}, 7);
  expect_error<base::InputError>([&] { model->forward(segment_of(tokens), model->initial_state(1)); },
                                 {"6 rows", "position.max_len = 5"});
  const auto open = model->forward(segment_of(tokens.narrow(1, 0, 4), {true, false}), model->initial_state(1));
  model->forward(segment_of(tokens.narrow(1, 4, 1), {false, false}), open.state);
  expect_error<base::InputError>(
      [&] {
        model->forward(segment_of(tokens.narrow(1, 4, 2), {false, true}), open.state);
      },
      {"6 rows"});
}

TEST(Model, SequencesEndASegmentTogetherOrNotAtAll) {
  const auto model = build_of({"memory[0].type=recurrent_tokens"});
  const at::NoGradGuard no_grad;
  std::vector<core::State> states;
  for (const int64_t length : {2, 3}) {
    states.push_back(
        model->forward(segment_of(Numbers(1).tokens({1, length}, 7), {true, false}), model->initial_state(1)).state);
  }
  const core::State joined = core::concat_batch(states);
  expect_error<base::InputError>(
      [&] {
        model->forward(segment_of(Numbers(1).tokens({2, 1}, 7), {false, true}), joined);
      },
      {"together", "6 to 7"});
}

// Nothing given is ignored.
TEST(Model, ASegmentOfAnotherKindIsRefused) {
  const auto model = build_of({});
  for (const bool pixels : {true, false}) {
    Segment segment = segment_of(Numbers(1).tokens({1, 3}, 7));
    if (pixels) segment.pixels = at::zeros({1, 3, 8, 8}, at::kDouble);
    if (!pixels) segment.source = Numbers(2).tokens({1, 4}, 7);
    expect_error<base::InputError>([&] { model->forward(segment, model->initial_state(1)); },
                                   {"decoder", "takes tokens or rows alone", pixels ? "pixels with" : "a source with"});
  }
}

// A segment cache in the lower layer, a compressive memory in the upper one: each layer sees its own rows, in whole
// segments and token by token alike, and a saved open segment continues.
TEST(Model, LayersMayHaveDifferentMemories) {
  const auto model = build_of({"backbone.num_layers=3", "memory[0].type=segment_cache", "memory[0].mem_len=3",
                               "memory[0].layers=[0]", "memory[1].type=compressive", "memory[1].mem_len=4",
                               "memory[1].layers=[2]", "memory[1].compression=mean_pooling",
                               "memory[1].compression_rate=2"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(4).tokens({2, 15}, 7);
  core::State whole = model->initial_state(2), parts = whole;
  for (int64_t n = 0; n < 3; ++n) {
    const at::Tensor segment = tokens.narrow(1, 5 * n, 5);
    const core::StepResult at_once = model->forward(segment_of(segment), whole);
    whole = at_once.state;
    for (int64_t token = 0; token < 5; ++token) {
      const core::StepResult step = model->forward(segment_of(segment.narrow(1, token, 1), {token == 0, token == 4}),
                                                   parts);
      EXPECT_LE(difference(step.hidden, at_once.hidden.narrow(1, token, 1)), 1e-12) << n << " " << token;
      const auto saved = core::save(step.state);
      parts = core::load(model->initial_state(2), [&](const std::string& path) {
        for (const auto& [name, tensor] : saved) {
          if (name == path) return tensor;
        }
        return at::Tensor();
      });
    }
  }
  std::set<std::string> paths;
  for (const auto& [field, tensor] : whole.fields()) paths.insert(field.path);
  EXPECT_TRUE(paths.contains("segment_cache.layers.0") && paths.contains("compressive.layers.2"));
  EXPECT_FALSE(paths.contains("segment_cache.layers.1") || paths.contains("compressive.layers.0"));
  const auto tables = model->attend_tables(5, whole, Mode::evaluate);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].table.num_context(), 3);
  EXPECT_EQ(tables[1].table.num_context(), 0);
  EXPECT_GT(tables[2].table.num_context(), 4);
  expect_error<base::InputError>(
      [] {
        build_of({"memory[0].type=segment_cache", "memory[0].layers=[0]", "memory[1].type=compressive",
                  "memory[1].layers=[1, 0]"});
      },
      {"'segment_cache' and 'compressive' attach to the same place", "different `layers`"});
}

TEST(Model, DrawsTheTableThatASegmentHas) {
  const auto model = build_of({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2",
                               "memory[1].type=segment_cache", "memory[1].mem_len=3"});
  const at::NoGradGuard no_grad;
  core::State state = model->initial_state(1);
  EXPECT_EQ(model->attend_tables(3, state, Mode::evaluate).at(0).table.num_keys(), 7);
  state = model->forward(segment_of(Numbers(1).tokens({1, 4}, 7)), state).state;
  const core::AttendTable table = model->attend_tables(3, state, Mode::evaluate).at(0).table;
  EXPECT_EQ(table.num_context(), 3);
  EXPECT_EQ(table.num_rows(), 7);
  EXPECT_EQ(table.row_offset(core::SpanKind::write), 5);
}

TEST(Model, LayerStackTakesRowsAndHasNoHead) {
  const auto model = build_of({"kind=layer_stack", "embedding.vocab_size=0"});
  EXPECT_FALSE(model->parameters().find("embed.weight").defined());
  const at::NoGradGuard no_grad;
  Segment segment;
  segment.rows = Numbers(1).normal({2, 3, 4});
  EXPECT_EQ(model->forward(segment, model->initial_state(2)).hidden.sizes(), at::IntArrayRef({2, 3, 4}));
  expect_error<base::InternalError>([&] { model->logits(segment.rows); }, {"no head"});
  expect_error<base::InputError>(
      [&] {
        model->forward(segment_of(at::zeros({1, 2}, at::kLong)), model->initial_state(1));
      },
      {"takes rows [B,T,D]", "found tokens"});
}

TEST(Model, DropoutActsInTrainingAlone) {
  const auto model = build_of({"backbone.dropout=0.5"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(1).tokens({2, 3}, 7);
  const auto hidden = [&](Mode mode) {
    return model->forward(segment_of(tokens, {}, mode), model->initial_state(2)).hidden;
  };
  EXPECT_TRUE(at::equal(hidden(Mode::evaluate), hidden(Mode::evaluate)));
  EXPECT_FALSE(at::equal(hidden(Mode::train), hidden(Mode::train)));
}

TEST(Model, TrainsAfterItHasServed) {
  // Tables made in inference mode must not break a later backward pass.
  const auto model = build_of(
      {"memory[0].type=segment_cache", "memory[1].type=recurrent_tokens", "memory[2].type=grc"});
  const at::Tensor tokens = Numbers(1).tokens({2, 3}, 7);
  {
    const c10::InferenceMode inference;
    model->forward(segment_of(tokens), model->initial_state(2));
  }
  ASSERT_NO_THROW(
      model->forward(segment_of(tokens, {}, Mode::train), model->initial_state(2)).hidden.pow(3).sum().backward());
  EXPECT_GT(test::largest(model->parameters().find("backbone.layers.0.attn.r.weight").grad()), 0.0);
}

}  // namespace
}  // namespace mnemo::models
