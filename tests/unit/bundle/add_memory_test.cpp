// Memories, and other attentions, in trained models of texts.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/add_memory.h"
#include "bundle/bundle.h"
#include "bundle/convert.h"
#include "infer/engine.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"

namespace mnemo::bundle {
namespace {

using test::difference;
using test::expect_error;
using test::kCausal;
using test::kTexts;
using test::logits_of;

TEST(AddMemory, WithoutMemoryTokensLogitsKeepTheirBits) {
  for (const std::string& name : kCausal) {
    const test::TemporaryFolder folder;
    const Converted made = convert({.model = kTexts + name,
                                    .out = folder / "out",
                                    .memory = {"recurrent_tokens,num_mem_tokens=0,block_mask=causal"},
                                    .segment = 12});
    EXPECT_EQ(made.fresh, 0) << name;
    EXPECT_EQ(difference(logits_of(*read_bundle(folder / "out").model), logits_of(*load_any(kTexts + name).model)), 0.0)
        << name;
  }
}

TEST(AddMemory, KeepsEveryWeightAndDrawsItsOwn) {
  const test::TemporaryFolder folder;
  const Converted made = convert({.model = kTexts + "llama",
                                  .out = folder / "out",
                                  .memory = {"recurrent_tokens,num_mem_tokens=3", "segment_cache,mem_len=7"},
                                  .segment = 6});
  EXPECT_EQ(made.fresh, 3 * 24);
  EXPECT_GT(made.first_loss, 0.0);
  const auto model = read_bundle(folder / "out").model;
  EXPECT_EQ(model->options().memory.size(), 2u);
  EXPECT_EQ(core::token_input(model->input()).segment_size, 6);
  EXPECT_EQ(infer::unsupported_reason(*model), "");
  const auto old = load_any(kTexts + "llama").model;
  for (const auto& [name, tensor] : old->parameters().named())
    EXPECT_TRUE(at::equal(tensor, model->parameters().find(name))) << name;
  // On a model of ours memories are added to those it has, and its weights stay too.
  convert({.model = folder / "out", .out = folder / "more", .memory = {"grc,cache_len=4"}});
  const auto more = read_bundle(folder / "more").model;
  EXPECT_EQ(more->options().memory.size(), 3u);
  for (const auto& [name, tensor] : model->parameters().named())
    EXPECT_TRUE(at::equal(tensor, more->parameters().find(name))) << name;
}

/// A training step over three segments, then the same tokens by the engine.
void train_and_decode(const std::shared_ptr<models::Model>& model, const std::string& what) {
  const at::Tensor tokens = test::Numbers(3).tokens({1, 3 * core::token_input(model->input()).segment_size},
                                                    core::token_input(model->input()).vocab_size);
  const auto run = [&](core::Mode mode) {
    core::State state = model->initial_state(1);
    std::vector<at::Tensor> logits;
    for (int64_t first = 0; first < tokens.size(1); first += core::token_input(model->input()).segment_size) {
      core::Segment segment;
      segment.tokens = tokens.narrow(1, first, core::token_input(model->input()).segment_size);
      segment.mode = mode;
      core::StepResult step = model->forward(segment, state);
      logits.push_back(model->logits(step.hidden));
      state = std::move(step.state);
    }
    return at::cat(logits, 1);
  };
  run(core::Mode::train).square().mean().backward();
  for (const auto& [name, tensor] : model->parameters().named()) {
    EXPECT_TRUE(!tensor.grad().defined() || at::isfinite(tensor.grad()).all().item<bool>()) << what << ": " << name;
  }
  model->parameters().zero_grad();
  ASSERT_EQ(infer::unsupported_reason(*model), "") << what;
  const at::NoGradGuard no_grad;
  const at::Tensor expected = run(core::Mode::evaluate)[0][-1];
  const infer::Engine engine(model);
  infer::EngineSequence sequence = engine.begin();
  const at::Tensor found = at::empty({core::token_input(model->input()).vocab_size}, at::kFloat);
  for (int64_t i = 0; i < tokens.size(1); ++i) {
    // Inside a segment the state is the model's, and goes on.
    if (i == core::token_input(model->input()).segment_size + 2)
      sequence = engine.import(engine.export_state(sequence));
    const int64_t token = tokens[0][i].item<int64_t>();
    const infer::Engine::Step step{&sequence, {&token, 1}, found.mutable_data_ptr<float>()};
    engine.run({&step, 1});
  }
  EXPECT_LE(difference(found, expected), 1e-4 * test::largest(expected)) << what;
}

TEST(AddMemory, EveryCausalModelTakesEveryMemory) {
  for (const std::string& name : kCausal) {
    for (const char* memory :
         {"recurrent_tokens,num_mem_tokens=2,block_mask=causal", "segment_cache,mem_len=5", "attention_cache,mem_len=5",
          "knn,memory_len=9,top_k=3", "grc,cache_len=4", "compressive,mem_len=3,compressed_len=4,compression_rate=2",
          "compressive,mem_len=3,compressed_len=4,compression_rate=2,compression=most_used",
          "memory_tokens,num_mem_tokens=2"}) {
      const std::string what = name + " with " + memory;
      const test::TemporaryFolder folder;
      convert({.model = kTexts + name, .out = folder / "out", .memory = {memory}, .segment = 5});
      train_and_decode(read_bundle(folder / "out").model, what);
    }
    // Several at once: a memory in every place.
    const test::TemporaryFolder folder;
    convert({.model = kTexts + name,
             .out = folder / "out",
             .memory = {"recurrent_tokens,num_mem_tokens=2", "segment_cache,mem_len=5", "knn,memory_len=9,top_k=3",
                        "grc,cache_len=4"},
             .segment = 5});
    train_and_decode(read_bundle(folder / "out").model, name + " with four memories");
  }
}

TEST(AddMemory, EveryTranslationModelTakesMemoriesInItsEncoder) {
  for (const auto& [name, ratio] :
       {std::pair("t5_v10", "0.9"), std::pair("t5_v11", "0.9"), std::pair("marian", "0.5")}) {
    const auto old = load_any(kTexts + name).model;
    const std::string front = "recurrent_tokens,layout=encoder,memory_position=front,num_mem_tokens=2,pad_token=0",
                      grc = fmt::format("grc,cache_len=4,cache_ratio={}", ratio);
    for (const std::string& memory : {front + ",eos_token=1", grc, std::string("knn,memory_len=9,top_k=3")}) {
      const test::TemporaryFolder folder;
      const Converted made = convert({.model = kTexts + name, .out = folder / "out", .memory = {memory}});
      EXPECT_TRUE(std::isfinite(made.first_loss)) << name << " " << memory;
      const auto model = read_bundle(folder / "out").model;
      for (const auto& [weight, tensor] : old->parameters().named())
        EXPECT_TRUE(at::equal(tensor, model->parameters().find(weight))) << name << " " << memory << " " << weight;
    }
  }
}

// Linformer's table has a row for each place of a segment; where segments stand alone it is never asked for more, and
// elsewhere a warning says how to train it.
TEST(AddMemory, SegmentsThatStandAloneAreTriedAlone) {
  const test::TemporaryFolder folder;
  const auto gpt2 = load_any(kTexts + "gpt2").model;
  const std::string linformer = "abc,num_slots=3,control={type=\"linformer\",max_len=8}";
  for (const bool alone : {true, false}) {
    const std::string name = alone ? "alone" : "joined";
    BundleContent content{.options = gpt2->options(), .model = *gpt2};
    content.files[TextConventions::kFile] = alone ? R"({"reset": "segments"})" : R"({"reset": "documents"})";
    write_bundle(folder / name, content);
    const ConvertOptions options{
        .model = folder / name, .out = folder / (name + "_out"), .attention = linformer, .segment = 8};
    testing::internal::CaptureStderr();
    EXPECT_TRUE(std::isfinite(convert(options).first_loss));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("cannot read a second segment") == std::string::npos, alone) << said;
  }
}

TEST(AddMemory, AnotherAttentionTakesWhatItCan) {
  const test::TemporaryFolder folder;
  const Converted made = convert({.model = kTexts + "gpt2", .out = folder / "out", .attention = "abc,num_slots=4"});
  EXPECT_GT(made.fresh, 0);
  EXPECT_TRUE(std::isfinite(made.first_loss));
  const auto model = read_bundle(folder / "out").model, old = load_any(kTexts + "gpt2").model;
  const std::string weight = "backbone.layers.1.attn.k.weight";
  EXPECT_TRUE(at::equal(model->parameters().find(weight), old->parameters().find(weight)));
  // Changing an option of an attention keeps its positions and its groups of queries.
  EXPECT_EQ(convert({.model = kTexts + "llama", .out = folder / "same", .attention = "softmax,dropout=0.5"}).fresh, 0);
  EXPECT_EQ(difference(logits_of(*read_bundle(folder / "same").model), logits_of(*load_any(kTexts + "llama").model)),
            0.0);
  expect_error<base::InputError>(
      [&] { convert({.model = kTexts + "llama", .out = folder / "no", .attention = "relative"}); },
      {"--attention", "relative", "rotary", "softmax, linear, sliding_window, abc"});
  expect_error<base::InputError>(
      [&] { convert({.model = kTexts + "gpt2", .out = folder / "no", .attention = "sliding_window,window=4"}); },
      {"--attention: unknown key 'window'; did you mean 'window_size'?"});
}

// Scores that T5 does not divide by sqrt(d) would be far too small if another attention did.
TEST(AddMemory, ScoresThatAreNotScaledStaySo) {
  const test::TemporaryFolder folder;
  const auto to = [&](const std::string& model, const std::string& attention, const char* out) {
    convert({.model = model, .out = folder / out, .attention = attention});
    return read_bundle(folder / out).model->options().backbone.stack().attention.table();
  };
  to(kTexts + "gpt2", "softmax,scaled=false", "unscaled");
  const std::string unscaled = folder / "unscaled";
  EXPECT_EQ(to(unscaled, "abc,num_slots=4", "abc").at("scale").as_string(), "none");
  EXPECT_EQ(to(unscaled, "abc,num_slots=4,scale=sqrt_d", "said").at("scale").as_string(), "sqrt_d");
  EXPECT_FALSE(to(unscaled, "softmax,dropout=0.5", "softmax").at("scaled").as_bool());
  EXPECT_EQ(to(kTexts + "gpt2", "abc,num_slots=4", "usual").at("scale").as_string(), "sqrt_d");
  expect_error<base::InputError>([&] { to(unscaled, "sliding_window,window_size=4", "no"); },
                                 {"--attention", "scaled = false", "'sliding_window'", "softmax", "abc"});
}

TEST(AddMemory, EveryCausalModelTakesBoundedMemoryAndLinearAttention) {
  for (const std::string& name : kCausal) {
    for (const char* attention : {"abc,num_slots=4", "abc,num_slots=4,control={type=\"window\"}", "linear",
                                  "linear,feature_map=t2r,num_features=8", "linear,feature_map=rfa,variant=authors"}) {
      const std::string what = name + " with " + attention;
      const test::TemporaryFolder folder;
      const Converted made = convert(
          {.model = kTexts + name, .out = folder / "out", .attention = attention, .segment = 5});
      EXPECT_TRUE(std::isfinite(made.first_loss)) << what;
      const auto model = read_bundle(folder / "out").model, old = load_any(kTexts + name).model;
      for (const char* key : {"rotary", "num_kv_heads"}) {
        const base::Node before = old->options().backbone.stack().attention.table();
        if (!before.contains(key)) continue;
        EXPECT_EQ(model->options().backbone.stack().attention.table().at(key), before.at(key)) << what;
      }
      train_and_decode(model, what);
    }
  }
}

// DeBERTa knows the order of its tokens by its attention alone.
TEST(AddMemory, AnAttentionWithTheOnlyPositionsIsNotTakenAway) {
  const test::TemporaryFolder folder;
  for (const char* attention : {"abc,num_slots=4", "linear", "sliding_window,window_size=4", "linformer,num_slots=4"})
    expect_error<base::InputError>(
        [&] { convert({.model = kTexts + "deberta_v3_cls", .out = folder / "no", .attention = attention}); },
        {"--attention", "positions", "disentangled", std::string(attention).substr(0, 3)});
  convert({.model = kTexts + "deberta_v3_cls", .out = folder / "same", .attention = "relative_buckets"});
  convert({.model = kTexts + "deberta_v3_cls", .out = folder / "turned", .attention = "abc,rotary={base=100.0}"});
}

// LSH shares one map between queries and keys, so nothing of theirs could stay.
TEST(AddMemory, AnAttentionWithoutMapsOfItsOwnIsRefused) {
  const test::TemporaryFolder folder;
  convert({.model = kTexts + "gpt2", .to = "mnemo", .out = folder / "ours"});
  for (const std::string& model : {kTexts + "gpt2", kTexts + "bert_cls", folder / "ours"})
    expect_error<base::InputError>(
        [&] { convert({.model = model, .out = folder / "no", .attention = "lsh", .segment = 8}); },
        {"--attention", "q, k and v", "'lsh'"});
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
}

TEST(AddMemory, TheModelsOwnFolderIsNotReplaced) {
  const test::TemporaryFolder folder;
  convert({.model = kTexts + "gpt2", .to = "mnemo", .out = folder / "model"});
  std::filesystem::create_directory_symlink(folder / "model", folder / "link");
  const std::string config = base::read_file(folder / "model/config.json", 1 << 20);
  for (const std::string& out :
       std::vector<std::string>{folder / "model", folder / "link", folder / "model/", folder / "link/../model/."}) {
    for (const ConvertOptions& options :
         {ConvertOptions{.model = folder / "model", .to = "huggingface_gpt2", .out = out},
          {.model = folder / "link", .to = "mnemo", .out = out},
          {.model = folder / "model", .out = out, .memory = {"grc,cache_len=4"}}})
      expect_error<base::InputError>([&] { convert(options); }, {"--out", "other than the model's", "model"});
  }
  EXPECT_EQ(base::read_file(folder / "model/config.json", 1 << 20), config);
}

/// The warm start of ABC and Linformer: trained queries, keys, values and output. With a slot for each token ABC is
/// softmax, so such a model computes what it did.
TEST(AddMemory, ASoftmaxModelBecomesBoundedMemory) {
  const test::TemporaryFolder folder;
  const auto old = load_any(kTexts + "gpt2").model;
  const auto from_softmax = [&](const std::string& name, const std::string& attention) {
    convert({.model = kTexts + "gpt2", .out = folder / name, .attention = attention});
    return read_bundle(folder / name).model;
  };
  const auto whole = from_softmax("whole", "abc,num_slots=80,mask_empty_slots=true,control={type=\"identity\"}");
  core::Segment segment;
  segment.tokens = test::Numbers(1).tokens({2, 20}, core::token_input(old->input()).vocab_size);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = old->logits(old->forward(segment, old->initial_state(2)).hidden);
  EXPECT_LE(test::difference(whole->logits(whole->forward(segment, whole->initial_state(2)).hidden), expected), 1e-4);
  const auto linformer = from_softmax("linformer", "abc,num_slots=4,control={type=\"linformer\",max_len=80}");
  EXPECT_GT(
      test::difference(linformer->logits(linformer->forward(segment, linformer->initial_state(2)).hidden), expected),
      1e-3);
  size_t fresh = 0;
  for (const auto& [name, tensor] : linformer->parameters().named()) {
    const at::Tensor source = old->parameters().find(name);
    EXPECT_TRUE(!source.defined() || at::equal(tensor, source)) << name;
    fresh += source.defined() ? 0 : 1;
  }
  EXPECT_GT(fresh, 0u) << "the table of slots";
}

TEST(AddMemory, TheModelsOwnCacheIsKept) {
  const test::TemporaryFolder folder;
  convert({.model = kTexts + "gpt2", .out = folder / "grc", .memory = {"grc,cache_len=4"}, .segment = 8});
  const auto model = read_bundle(folder / "grc").model;
  core::Segment segment;
  segment.tokens = test::Numbers(1).tokens({2, 8}, core::token_input(model->input()).vocab_size);
  segment.mode = core::Mode::train;
  model->commit(model->forward(segment, model->initial_state(2)).state);
  write_bundle(folder / "moved", {.options = model->options(), .model = *model});
  convert({.model = folder / "moved", .out = folder / "more", .memory = {"segment_cache,mem_len=4"}});
  const auto expected = model->initial_state(1).fields();
  size_t caches = 0;
  for (const auto& [field, tensor] : read_bundle(folder / "more").model->initial_state(1).fields()) {
    for (const auto& [other, source] : expected) {
      if (other.path != field.path) continue;
      EXPECT_TRUE(at::equal(tensor, source)) << field.path;
      caches += source.abs().max().item<float>() > 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(caches, 2u);
}

TEST(AddMemory, RefusesWhatDoesNotFit) {
  const test::TemporaryFolder folder;
  const auto refuses = [&](const ConvertOptions& options, std::initializer_list<std::string> parts) {
    expect_error<base::InputError>([&] { convert(options); }, parts);
  };
  const std::string gpt2 = kTexts + "gpt2", out = folder / "out";
  refuses({.model = gpt2, .out = out, .memory = {"recurrent_tokens,num_mem_tokens=4"}, .segment = 28},
          {"--segment", "20", "28"});
  refuses({.model = gpt2, .out = out, .segment = 0}, {"--segment: expected at least 1, found 0"});
  refuses({.model = gpt2, .out = out, .memory = {"recurrent_tokens,num_mem_tokens=40"}},
          {"--memory: adds 80 rows to every segment", "28 positions: expected fewer"});
  refuses({.model = kTexts + "llama", .out = out, .memory = {"recurrent_tokens,num_mem_tokens=400"}},
          {"--memory: adds 800 rows", "or --segment"});
  refuses({.model = gpt2, .out = out, .memory = {"recurrent_tokens,16"}}, {"--memory", "KEY=VALUE"});
  refuses({.model = gpt2, .out = out, .memory = {"recurent_tokens"}}, {"recurent_tokens", "recurrent_tokens"});
  refuses({.model = gpt2, .to = "mnemo", .out = out, .memory = {"grc"}}, {"--to"});
  refuses({.model = gpt2, .memory = {"grc"}}, {"--out"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(AddMemory, ArgumentsAreTables) {
  const base::Node table = table_of_argument("grc,cache_len=4,layers=[0, 1],variant=paper", "--memory");
  EXPECT_EQ(table,
            base::Node::table(
                {{"type", "grc"}, {"cache_len", 4}, {"layers", base::Node::array({0, 1})}, {"variant", "paper"}}));
}

}  // namespace
}  // namespace mnemo::bundle
