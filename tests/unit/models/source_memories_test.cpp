// Laws of memories around the encoder of a translation model, which go from source to source and from segment to
// segment.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ostream>

#include "base/error.h"
#include "core/backbone.h"
#include "core/state.h"
#include "models/full_state.h"
#include "models/pair_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/pair_models.h"

namespace mnemo::models {
namespace {

using test::difference;
using test::pair_options;
using test::pair_segment;
using test::pair_source;
using Memories = std::vector<base::Node>;

base::Node memory(const std::string& type, std::vector<std::pair<std::string, base::Node>> more) {
  base::Node node = base::Node::table({{"type", type}});
  for (auto& [key, value] : more) node.set(key, value);
  return node;
}
base::Node cache(int64_t rows) { return memory("segment_cache", {{"mem_len", rows}}); }
base::Node recurrent(int64_t count) {
  return memory("recurrent_tokens", {{"num_mem_tokens", count}, {"layout", "encoder"}, {"memory_position", "front"}});
}
base::Node learned(int64_t count, const std::string& variant) {
  return memory("memory_tokens", {{"num_mem_tokens", count}, {"variant", variant}});
}

ModelOptions options_with(const Memories& memories, std::optional<int64_t> segment = {},
                          const std::string& encoder = "softmax") {
  ModelOptions options = pair_options("softmax", "softmax", encoder);
  for (const base::Node& one : memories)
    options.backbone.pairs().encoder.memory.push_back(ModelOptions::memory_types().read(one));
  options.backbone.pairs().encoder.segment_size = segment;
  return options;
}

/// Without positions, so that only what memories carry joins segments.
ModelOptions without_positions(ModelOptions options) {
  options.backbone.pairs().position.type = backbones::PositionOptions::Type::none;
  return options;
}

core::State read(const PairModel& model, const at::Tensor& source, const core::State& before) {
  return model.read_source(source, source != 1, core::Mode::evaluate, before);
}

/// The real rows that a decoder reads, of one sequence.
at::Tensor real_rows(const core::State& state, int64_t row = 0) {
  const core::EncoderOutput output = SourceSide::output(state.child("source"));
  return output.rows[row].index({output.valid[row]});
}

struct Case {
  std::string name;
  Memories memories;
  std::string encoder = "softmax";
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

struct SourceMemories : testing::TestWithParam<Case> {
  std::unique_ptr<PairModel> make(std::optional<int64_t> segment = {}, bool positions = true) const {
    ModelOptions options = options_with(GetParam().memories, segment, GetParam().encoder);
    return build_as<PairModel>(positions ? options : without_positions(options), 5, at::kDouble);
  }
  bool carries() const { return GetParam().name != "memory_tokens"; }
  const at::NoGradGuard no_grad_;
};

// A source read segment by segment is that many sources, one after another through the memory.
TEST_P(SourceMemories, SegmentsOfASourceAreSourcesInARow) {
  at::manual_seed(1);
  const at::Tensor source = at::randint(4, 19, {2, 11}, at::kLong);
  const auto whole = make(4, false), pieces = make({}, false);
  const core::State at_once = read(*whole, source, whole->initial_state(2));
  core::State state = pieces->initial_state(2);
  std::vector<at::Tensor> rows;
  for (int64_t first = 0; first < 11; first += 4) {
    state = read(*pieces, source.narrow(1, first, std::min<int64_t>(4, 11 - first)), pieces->carried(state));
    rows.push_back(SourceSide::output(state.child("source")).rows);
  }
  EXPECT_LE(difference(SourceSide::output(at_once.child("source")).rows, at::cat(rows, 1)), 1e-12);
  const auto expected = core::save(pieces->carried(state)), found = core::save(whole->carried(at_once));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_LE(difference(found[i].second.to(at::kDouble), expected[i].second.to(at::kDouble)), 1e-12) << found[i].first;
  }
}

// Carried memory changes what the next source reads; the memory tokens of the paper carry nothing.
TEST_P(SourceMemories, TheNextSourceReadsWhatWasCarried) {
  const auto model = make();
  EXPECT_EQ(model->source().carries_memory(), carries());
  at::manual_seed(2);
  const at::Tensor first = pair_source(1, 6), second = pair_source(1, 5);
  const core::State before = model->carried(read(*model, first, model->initial_state(1)));
  const at::Tensor after = real_rows(read(*model, second, before)),
                   alone = real_rows(read(*model, second, model->initial_state(1)));
  if (carries())
    EXPECT_GT(difference(after, alone), 1e-6);
  else
    EXPECT_TRUE(at::equal(after, alone));
}

// Neither padding, nor its side, nor the other sequences of the batch change what is read or carried, whether a source
// is one segment or several of which some are padding alone.
TEST_P(SourceMemories, PaddingAndCompanyChangeNothing) {
  for (const std::optional<int64_t> segment : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    const auto model = make(segment);
    at::manual_seed(3);
    const at::Tensor first = pair_source(3, 7), second = pair_source(3, 5).flip(0);
    const core::State both = read(*model, second, model->carried(read(*model, first, model->initial_state(3))));
    for (int64_t b = 0; b < 3; ++b) {
      const auto own = [&](const at::Tensor& source) { return source[b].index({source[b] != 1}).unsqueeze(0); };
      const at::Tensor pads = at::ones({1, 3}, at::kLong);
      const core::State alone = model->carried(read(*model, own(first), model->initial_state(1)));
      EXPECT_LE(difference(real_rows(both, b), real_rows(read(*model, own(second), alone))), 1e-12) << b;
      const core::State left = model->carried(read(*model, at::cat({pads, own(first)}, 1), model->initial_state(1)));
      EXPECT_LE(difference(real_rows(both, b), real_rows(read(*model, at::cat({pads, own(second)}, 1), left))), 1e-12)
          << b;
    }
  }
}

// Selecting, repeating, saving and loading of what goes from source to source (law 8).
TEST_P(SourceMemories, WhatIsCarriedCanBeSelectedSavedAndLoaded) {
  const auto model = make(3);
  at::manual_seed(4);
  const at::Tensor first = pair_source(2, 8), second = pair_source(2, 5);
  const core::State carried = model->carried(read(*model, first, model->initial_state(2)));
  const core::State expected = read(*model, second, carried);
  const at::Tensor order = at::tensor({int64_t{1}, int64_t{0}, int64_t{1}});
  const core::State selected = read(*model, second.index_select(0, order), core::select_batch(carried, order));
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_LE(difference(real_rows(selected, i), real_rows(expected, order[i].item<int64_t>())), 1e-12);
  const at::Tensor twice = at::tensor({0, 0, 1, 1}, at::kLong);
  const core::State repeated = read(*model, second.index_select(0, twice), core::select_batch(carried, twice));
  for (int64_t i = 0; i < 4; ++i) EXPECT_LE(difference(real_rows(repeated, i), real_rows(expected, i / 2)), 1e-12);

  const auto saved = core::save(carried);
  const core::State loaded = core::load(model->initial_state(2), [&](const std::string& path) {
    for (const auto& [name, tensor] : saved) {
      if (name == path) return tensor;
    }
    return at::Tensor();
  });
  EXPECT_TRUE(at::equal(real_rows(read(*model, second, loaded)), real_rows(expected)));
  // A document that begins reads what a first one does.
  const core::State reset = core::reset_rows(carried, at::tensor({1, 0}).to(at::kBool), model->initial_state(2));
  const core::State mixed = read(*model, second, reset);
  const core::State fresh = read(*model, second, model->initial_state(2));
  EXPECT_LE(difference(real_rows(mixed, 0), real_rows(fresh, 0)), 1e-12);
  EXPECT_LE(difference(real_rows(mixed, 1), real_rows(expected, 1)), 1e-12);
}

// The target token by token is the whole, and goes on from a state that was saved.
TEST_P(SourceMemories, ATargetTokenByTokenIsTheWhole) {
  const auto model = make(3);
  at::manual_seed(6);
  const at::Tensor source = pair_source(2, 7), tokens = at::randint(4, 19, {2, 4}, at::kLong);
  const core::State before = model->carried(read(*model, pair_source(2, 4), model->initial_state(2)));
  const at::Tensor whole = model->forward(pair_segment(source, tokens), before).hidden;
  core::State state = read(*model, source, before);
  for (int64_t i = 0; i < 4; ++i) {
    core::Segment segment;
    segment.tokens = tokens.narrow(1, i, 1);
    segment.part = {i == 0, i == 3};
    const core::StepResult step = model->forward(segment, state);
    EXPECT_LE(difference(step.hidden.squeeze(1), whole.select(1, i)), 1e-12);
    state = step.state;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SourceMemories,
    testing::Values(
        Case{"segment_cache", {cache(5)}}, Case{"segment_cache_relative", {cache(5)}, "relative"},
        Case{"segment_cache_buckets", {cache(5)}, "relative_buckets"},
        Case{"segment_cache_window", {cache(5)}, "sliding_window"},
        Case{"attention_cache", {memory("attention_cache", {{"mem_len", 4}})}},
        Case{"compressive", {memory("compressive", {{"mem_len", 3}, {"compressed_len", 2}, {"compression_rate", 2}})}},
        Case{"memory_tokens", {learned(2, "paper")}}, Case{"memory_tokens_authors", {learned(2, "authors")}},
        Case{"recurrent_tokens", {recurrent(2)}},
        Case{"recurrent_tokens_ends",
             {memory("recurrent_tokens", {{"num_mem_tokens", 2},
                                          {"layout", "encoder"},
                                          {"memory_position", "front"},
                                          {"eos_token", 2},
                                          {"pad_token", 1}})}},
        Case{
            "recurrent_tokens_special",
            {memory(
                "recurrent_tokens",
                {{"num_mem_tokens", 2}, {"layout", "encoder"}, {"cls_token", 0}, {"sep_token", 2}, {"pad_token", 1}})}},
        Case{"both", {recurrent(2), cache(5)}},
        Case{"both_tokens",
             {learned(2, "authors"), memory("segment_cache", {{"mem_len", 5}, {"keep_memory_rows", false}})}},
        Case{"knn", {memory("knn", {{"memory_len", 6}, {"top_k", 3}})}},
        Case{"grc", {cache(5), memory("grc", {{"cache_len", 3}, {"lifetime", "sequence"}})}}),
    [](const auto& info) { return info.param.name; });

// No rows: the plain model, bit for bit, also after a source.
TEST(SourceMemory, WithoutRowsItIsThePlainModel) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const at::Tensor first = pair_source(3, 6), second = pair_source(3, 5),
                   tokens = at::randint(4, 19, {3, 4}, at::kLong);
  const auto plain = build_as<PairModel>(pair_options(), 5);
  const at::Tensor expected = plain->forward(pair_segment(second, tokens), plain->initial_state(3)).hidden;
  for (const Memories& memories :
       std::vector<Memories>{{cache(0)}, {recurrent(0)}, {learned(0, "paper")}, {learned(0, "authors"), cache(0)}}) {
    const auto model = build_as<PairModel>(options_with(memories), 5);
    for (const auto& [name, tensor] : model->parameters().named()) {
      if (const at::Tensor own = plain->parameters().find(name); own.defined()) at::Tensor(tensor).copy_(own);
    }
    const core::State before = model->carried(read(*model, first, model->initial_state(3)));
    EXPECT_TRUE(at::equal(model->forward(pair_segment(second, tokens), before).hidden, expected))
        << base::to_json(memories[0], 0);
  }
}

TEST(SourceMemory, PositionsGoOnInsideASource) {
  const at::NoGradGuard no_grad;
  const auto model = build_as<PairModel>(options_with({}, 3), 5, at::kDouble);
  const at::Tensor source = at::tensor({5, 6, 7, 5, 6, 7, 2}, at::kLong).unsqueeze(0);
  const at::Tensor rows = SourceSide::output(read(*model, source, model->initial_state(1)).child("source")).rows;
  ASSERT_EQ(rows.size(1), 7);
  EXPECT_GT(difference(rows.narrow(1, 0, 3), rows.narrow(1, 3, 3)), 1e-6);
  const auto none = build_as<PairModel>(without_positions(options_with({}, 3)), 5, at::kDouble);
  const at::Tensor same = SourceSide::output(read(*none, source, none->initial_state(1)).child("source")).rows;
  EXPECT_LE(difference(same.narrow(1, 0, 3), same.narrow(1, 3, 3)), 1e-12);
}

TEST(SourceMemory, TheDecoderReadsTheRowsOfAllSegments) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const at::Tensor source = at::randint(4, 19, {1, 8}, at::kLong);
  const auto rows_of = [&](const Memories& memories, std::optional<int64_t> segment) {
    const auto model = build_as<PairModel>(options_with(memories, segment), 5);
    EXPECT_EQ(model->source().token_rows(8).size(), 8u);
    return std::pair(real_rows(read(*model, source, model->initial_state(1))).size(0), model->source().token_rows(8));
  };
  EXPECT_EQ(rows_of({cache(4)}, 3).first, 8);
  EXPECT_EQ(rows_of({recurrent(2)}, {}).first, 10);
  const auto [count, tokens] = rows_of({recurrent(2)}, 3);
  EXPECT_EQ(count, 8 + 3 * 2);
  EXPECT_EQ(tokens, (std::vector<int64_t>{2, 3, 4, 7, 8, 9, 12, 13}));
}

// Gradients through the memory, from the second source's loss: central differences. None goes into a cache.
TEST(SourceMemory, GradientsReachTheFirstSourceThroughRecurrentTokens) {
  at::manual_seed(1);
  const at::Tensor first = pair_source(2, 5), second = pair_source(2, 4),
                   tokens = at::randint(4, 19, {2, 3}, at::kLong);
  const at::Tensor weights = at::randn({2, 3, 12}, at::kDouble);
  for (const Memories& memories : std::vector<Memories>{{recurrent(2)}, {learned(2, "authors")}}) {
    const auto model = build_as<PairModel>(options_with(memories, 3), 5, at::kDouble);
    const auto loss = [&] {
      const core::State before = model->carried(read(*model, first, model->initial_state(2)));
      return (model->forward(pair_segment(second, tokens), before).hidden * weights).sum();
    };
    loss().backward();
    for (const auto& [name, tensor] : model->parameters().named()) {
      if (name.find("encoder") == std::string::npos && name != "embed.weight") continue;
      const at::NoGradGuard no_grad;
      const at::Tensor direction = at::randn_like(tensor);
      const double step = 1e-5, found = (tensor.grad() * direction).sum().item<double>();
      at::Tensor moved = tensor;
      moved.add_(direction, step);
      const double above = loss().item<double>();
      moved.sub_(direction, 2 * step);
      const double below = loss().item<double>();
      moved.add_(direction, step);
      EXPECT_NEAR(found, (above - below) / (2 * step), 1e-6 * std::max(1.0, std::abs(found))) << name;
    }
  }
}

TEST(SourceMemory, GradientsStopAtACache) {
  const auto model = build_as<PairModel>(options_with({cache(4)}), 5, at::kDouble);
  at::manual_seed(1);
  const core::State carried = model->carried(read(*model, pair_source(1, 5), model->initial_state(1)));
  for (const auto& [field, tensor] : carried.fields()) EXPECT_FALSE(tensor.requires_grad()) << field.path;
  EXPECT_EQ(model->bptt_depth("source.encoder.segment_cache.layers.0"), 0);
  base::Node two = recurrent(2);
  two.set("bptt_depth", 2);
  EXPECT_EQ(build_as<PairModel>(options_with({two}))->bptt_depth("source.encoder.recurrent_tokens.tokens"), 2);
}

TEST(SourceMemory, AFullStateIsCounted) {
  const at::NoGradGuard no_grad;
  const auto model = build_as<PairModel>(
      options_with({recurrent(2), cache(5), memory("knn", {{"memory_len", 6}, {"top_k", 2}})}));
  const at::Tensor source = at::full({1, 9}, 5, at::kLong);
  const core::State state = model->carried(read(*model, source, model->initial_state(1)));
  EXPECT_EQ(full_state_bytes(*model, core::Mode::evaluate, 100), core::num_bytes(state, core::Lifetime::sequence));
}

TEST(SourceMemory, CompressionLearnsFromItsOwnLoss) {
  const auto model = build_as<PairModel>(
      options_with({memory("compressive", {{"mem_len", 2}, {"compressed_len", 2}, {"compression_rate", 2}})}, 3), 5);
  at::manual_seed(1);
  core::Segment segment = pair_segment(pair_source(2, 8), at::randint(4, 19, {2, 3}, at::kLong));
  segment.mode = core::Mode::train;
  const auto losses = model->auxiliary_losses(model->forward(segment, model->initial_state(2)));
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_GT(losses[0].values.min().item<double>(), 0.0);
}

TEST(SourceMemory, WhatCannotWorkIsRefusedByName) {
  const auto refused = [](const Memories& memories, std::initializer_list<std::string> words,
                          const std::string& encoder = "softmax") {
    test::expect_error<base::InputError>([&] { build_as<PairModel>(options_with(memories, {}, encoder)); }, words);
  };
  refused({memory("segment_cache", {{"same_length", true}})}, {"same_length", "encoder"});
  refused({cache(4)}, {"'linformer'", "'segment_cache'"}, "linformer");
  refused({cache(4)}, {"'abc'", "'segment_cache'"}, "abc");
  refused({memory("recurrent_tokens", {})}, {"read_write", "layout = \"encoder\""});
  refused({memory("memory_tokens", {{"read_mem_from_cache", true}})}, {"read_mem_from_cache", "encoder"});
  refused({recurrent(2), learned(2, "paper")}, {"'recurrent_tokens' and 'memory_tokens'", "same place"});
  base::Node ends = recurrent(2);
  ends.set("eos_token", 2);
  refused({ends}, {"eos_token and pad_token belong together"});
}

}  // namespace
}  // namespace mnemo::models
