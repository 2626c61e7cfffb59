#include "train/recompute.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/ignore_target.h"
#include "data/segment.h"
#include "models/model.h"
#include "tasks/task.h"
#include "tests/support/numbers.h"
#include "train/segment_bptt.h"

namespace mnemo::train {
namespace {

constexpr int64_t kSegments = 6, kRows = 3, kTokens = 6, kSymbols = 11;

/// Counts the calls it forwards.
class CountedModel final : public core::Model {
 public:
  explicit CountedModel(std::unique_ptr<core::Model> model) : model_(std::move(model)) {}
  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    ++forwards;
    return model_->forward(segment, state);
  }
  core::State initial_state(int64_t batch) const override { return model_->initial_state(batch); }
  void commit(const core::State& state) override { model_->commit(state); }
  int64_t bptt_depth(const std::string& path) const override { return model_->bptt_depth(path); }
  at::Tensor logits(const at::Tensor& hidden) const override { return model_->logits(hidden); }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return model_->nll(hidden, targets);
  }
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override {
    return model_->auxiliary_losses(step);
  }
  const layers::ParameterSet& parameters() const override { return model_->parameters(); }
  const core::ModelInput& input() const override { return model_->input(); }

  mutable int64_t forwards = 0;

 private:
  std::unique_ptr<core::Model> model_;
};

CountedModel counted_model(const std::vector<std::string>& assignments,
                           const std::string& sizes = "dim = 8\nffn_dim = 12\ndropout = 0.2\n") {
  base::Node node = base::parse_toml(
      "[embedding]\nvocab_size = 11\n[backbone]\nnum_layers = 2\nnum_heads = 2\n" + sizes, "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return CountedModel(models::build(base::read_options<models::ModelOptions>(node), 3));
}

/// Segments of random tokens; with `documents`, some documents end inside the list, with padding before the reset.
std::vector<data::TokenSegment> random_segments(int64_t count, int64_t rows, int64_t tokens, bool documents) {
  test::Numbers numbers(8);
  std::vector<data::TokenSegment> made;
  for (int64_t s = 0; s < count; ++s) {
    data::TokenSegment segment;
    segment.tokens = numbers.tokens({rows, tokens}, kSymbols);
    segment.targets = numbers.tokens({rows, tokens}, kSymbols);
    if (documents && (s == 2 || s == 4)) segment.reset = at::arange(rows) != s - 2;
    if (documents && s == 3) {
      segment.valid = at::arange(tokens).unsqueeze(0) < (tokens - at::arange(rows)).unsqueeze(1);
      segment.targets = segment.targets.masked_fill(segment.valid.logical_not(), base::kIgnoreTarget);
    }
    segment.num_targets = (segment.targets != base::kIgnoreTarget).sum().item<int64_t>();
    made.push_back(segment);
  }
  return made;
}

/// Everything that processing a list of segments leaves behind.
struct Traces {
  std::vector<at::Tensor> tensors;  ///< losses, state, gradients, the generator
  std::vector<size_t> asked;        ///< segments whose losses were computed, in order
  int64_t forwards = 0;
};

Traces trace(const CountedModel& model, const std::vector<data::TokenSegment>& segments, BpttForm form,
             int64_t stored_bytes, bool recompute_layers = false) {
  const int64_t rows = segments.front().tokens.size(0);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(17);
  model.parameters().zero_grad();
  model.forwards = 0;
  std::vector<BpttSegment> inputs;
  for (const auto& segment : segments)
    inputs.push_back({tasks::model_input(segment, core::Mode::train), segment.reset});
  for (BpttSegment& input : inputs) input.input.recompute_layers = recompute_layers;
  // Gradients left by the previous step.
  test::Numbers numbers(9);
  const core::State given = model.initial_state(rows).map([&](const core::Field&, const at::Tensor& tensor) {
    if (!tensor.is_floating_point()) return tensor;
    return numbers.normal(tensor.sizes(), at::kFloat).abs().set_requires_grad(true);
  });
  Traces traces;
  const BpttResult result = backward_segments(
      model, inputs, given,
      [&](const core::StepResult& step, size_t index) {
        traces.asked.push_back(index);
        return tasks::token_loss(model, step, segments[index], 100, 0.1).total;
      },
      form, stored_bytes);
  traces.forwards = model.forwards;
  traces.tensors = result.losses;
  for (const auto& [field, tensor] : result.state.fields()) traces.tensors.push_back(tensor);
  for (const auto& [name, tensor] : model.parameters().named()) traces.tensors.push_back(tensor.grad());
  for (const auto& [field, tensor] : given.fields()) traces.tensors.push_back(tensor.grad());
  traces.tensors.push_back(generator.get_state());
  return traces;
}

void expect_same_bits(const Traces& found, const Traces& expected) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    ASSERT_EQ(found.tensors[i].defined(), expected.tensors[i].defined()) << "tensor " << i;
    if (expected.tensors[i].defined()) {
      EXPECT_TRUE(at::equal(found.tensors[i], expected.tensors[i]))
          << "tensor " << i << " of " << expected.tensors.size();
    }
  }
}

/// The bytes that one segment's graph holds.
int64_t graph_bytes(const CountedModel& model, const data::TokenSegment& segment) {
  const TensorMeter meter;
  const core::StepResult step = model.forward(tasks::model_input(segment, core::Mode::train),
                                              model.initial_state(segment.tokens.size(0)));
  const at::Tensor loss = tasks::token_loss(model, step, segment, 100, 0.1).total;
  return meter.bytes();
}

struct MemoryCase {
  std::string name;
  std::vector<std::string> assignments;
  int64_t forwards;  ///< of `sliding` with nothing stored
};

std::vector<MemoryCase> memory_cases() {
  const std::string relative = "backbone.attention.type=relative", softmax = "backbone.attention.type=softmax",
                    rmt = "memory[0].type=recurrent_tokens", two = "memory[0].num_mem_tokens=2",
                    aux = "memory[0].aux_loss.weight=0.5", xl = "memory[1].type=segment_cache",
                    long_cache = "memory[1].mem_len=9", abc = "backbone.attention.type=abc",
                    slots = "backbone.attention.num_slots=3", grc = "memory[1].type=grc",
                    grc_len = "memory[1].cache_len=3", causal = "memory[0].block_mask=causal";
  const auto depth = [](const std::string& k) { return "memory[0].bptt_depth=" + k; };
  const auto slots_depth = [](const std::string& k) { return "backbone.attention.bptt_depth=" + k; };
  // The last segment's graph is used at once, the others are recomputed: once, or twice if the largest finite depth is
  // 2 or more.
  constexpr int64_t at_once = kSegments, once = 2 * kSegments - 1, twice = 3 * kSegments - 2;
  return {
      {"none", {relative}, at_once},
      {"xl", {relative, "memory[0].type=segment_cache", "memory[0].mem_len=9"}, at_once},
      {"compressive",
       {relative, "memory[0].type=compressive", "memory[0].mem_len=4", "memory[0].compression_rate=2"},
       at_once},
      {"layer_drop",
       {relative, "backbone.layer_drop=0.4", "backbone.attention.dropout=0.2", "backbone.activation_dropout=0.2",
        "backbone.output_dropout=0.2", "backbone.attention.position_dropout=0.2", rmt, two},
       once},
      {"rms_norm", {softmax, "backbone.norm_type=rms", "backbone.norm=pre", rmt, two, depth("2")}, twice},
      {"gelu", {softmax, "backbone.activation=gelu", "backbone.init_std=0.7", rmt, two, depth("2")}, twice},
      {"gated_rms",
       {softmax, "backbone.norm_type=rms", "backbone.ffn_gated=true", "backbone.activation=silu", rmt, two},
       once},
      {"rmt_0", {relative, rmt, two, aux, depth("0")}, at_once},
      {"rmt_full", {relative, rmt, two, aux}, once},
      {"rmt_1", {relative, rmt, two, aux, depth("1")}, once + 1},
      {"rmt_2", {relative, rmt, two, aux, depth("2")}, twice},
      {"rmt_4", {relative, rmt, two, aux, depth("4")}, twice},
      {"rmt_xl_full", {relative, rmt, two, aux, xl, long_cache}, once},
      {"rmt_xl_1", {relative, rmt, two, aux, depth("1"), xl, long_cache}, once + 1},
      {"rmt_xl_read_2",
       {relative, rmt, two, aux, depth("2"), xl, long_cache, "memory[0].read_mem_from_cache=true"},
       twice},
      {"mt_authors", {relative, "memory[0].type=memory_tokens", two, "memory[0].variant=authors"}, once},
      {"grc_model", {softmax, "memory[0].type=grc", "memory[0].cache_len=3"}, once + 1},
      {"grc_sequence",
       {softmax, "memory[0].type=grc", "memory[0].cache_len=3", "memory[0].lifetime=sequence"},
       once + 1},
      {"abc_full", {abc, slots}, once},
      {"abc_1", {abc, slots, slots_depth("1")}, once + 1},
      {"abc_3", {abc, slots, slots_depth("3")}, twice},
      {"abc_relu", {abc, slots, "backbone.attention.control.activation=relu"}, once},
      {"abc_full_rmt_2", {abc, slots, rmt, two, aux, causal, depth("2")}, once},
      {"abc_1_rmt_2", {abc, slots, slots_depth("1"), rmt, two, aux, causal, depth("2")}, twice},
      {"rmt_full_grc", {relative, rmt, two, aux, grc, grc_len}, once},
      {"abc_2_rmt_1_grc", {abc, slots, slots_depth("2"), rmt, two, aux, causal, depth("1"), grc, grc_len}, twice},
  };
}

class Recompute : public testing::TestWithParam<MemoryCase> {};

TEST_P(Recompute, HasTheBitsOfStoringEverything) {
  const CountedModel model = counted_model(GetParam().assignments);
  const auto segments = random_segments(kSegments, kRows, kTokens, true);
  const int64_t bytes = graph_bytes(model, segments.front());
  for (const BpttForm form : {BpttForm::sliding, BpttForm::chunked}) {
    SCOPED_TRACE(form == BpttForm::sliding ? "sliding" : "chunked");
    const Traces expected = trace(model, segments, form, kStoreAll);
    EXPECT_EQ(expected.forwards, kSegments);
    EXPECT_EQ(expected.asked, (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
    int64_t forwards = trace(model, segments, form, 0).forwards;
    if (form == BpttForm::sliding) {
      EXPECT_EQ(forwards, GetParam().forwards);
    }
    for (const int64_t stored : {int64_t{0}, bytes * 5 / 2, bytes * 4, bytes * 100}) {
      SCOPED_TRACE(fmt::format("{} of {} bytes a segment", stored, bytes));
      const Traces found = trace(model, segments, form, stored);
      expect_same_bits(found, expected);
      EXPECT_LE(found.forwards, forwards);  // the more is stored, the less is recomputed
      forwards = found.forwards;
      EXPECT_EQ(std::set<size_t>(found.asked.begin(), found.asked.end()).size(), kSegments);
    }
    EXPECT_EQ(forwards, kSegments);
  }
}

// With dropout, several backward passes through a graph, and documents that end.
TEST_P(Recompute, OfLayersHasTheBitsOfStoringEverything) {
  const CountedModel model = counted_model(GetParam().assignments);
  const auto segments = random_segments(kSegments, kRows, kTokens, true);
  for (const BpttForm form : {BpttForm::sliding, BpttForm::chunked}) {
    SCOPED_TRACE(form == BpttForm::sliding ? "sliding" : "chunked");
    const Traces found = trace(model, segments, form, kStoreAll, true);
    expect_same_bits(found, trace(model, segments, form, kStoreAll));
    EXPECT_EQ(found.forwards, kSegments);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Recompute, testing::ValuesIn(memory_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(RecomputeWide, HasTheBitsOfStoringEverythingAtTheSizesOfRealModels) {
  const std::string relative = "backbone.attention.type=relative", rmt = "memory[0].type=recurrent_tokens";
  for (const std::vector<std::string>& assignments :
       std::vector<std::vector<std::string>>{{relative, rmt, "memory[1].type=segment_cache", "memory[1].mem_len=70"},
                                             {"backbone.attention.type=abc", "backbone.attention.num_slots=16"},
                                             {relative, rmt, "memory[1].type=grc", "memory[1].cache_len=16"}}) {
    SCOPED_TRACE(testing::PrintToString(assignments));
    const CountedModel model = counted_model(assignments, "dim = 128\nffn_dim = 256\ndropout = 0.1\n");
    const auto segments = random_segments(3, 2, 90, false);
    expect_same_bits(trace(model, segments, BpttForm::sliding, 0),
                     trace(model, segments, BpttForm::sliding, kStoreAll));
  }
}

TEST(RecomputeOrder, OneLossASegmentFromTheLast) {
  const CountedModel model = counted_model({"backbone.attention.type=relative", "memory[0].type=recurrent_tokens"});
  const Traces traces = trace(model, random_segments(kSegments, kRows, kTokens, false), BpttForm::sliding, 0);
  EXPECT_EQ(traces.asked, (std::vector<size_t>{5, 4, 3, 2, 1, 0}));
}

TEST(RecomputeOrder, WhatIsDifferentiatedMakesRoom) {
  const CountedModel model = counted_model({"backbone.attention.type=relative", "memory[0].type=recurrent_tokens",
                                            "memory[0].num_mem_tokens=2", "memory[0].bptt_depth=1"});
  const auto segments = random_segments(kSegments, kRows, kTokens, false);
  const int64_t bytes = graph_bytes(model, segments.front());
  for (const BpttForm form : {BpttForm::sliding, BpttForm::chunked}) {
    EXPECT_EQ(trace(model, segments, form, bytes * 5 / 2).forwards, kSegments);  // two graphs at a time
    EXPECT_GT(trace(model, segments, form, bytes / 2).forwards, kSegments);
  }
}

TEST(RecomputeOrder, AFailureInTheSecondRunLeavesTheGeneratorWhereItWas) {
  const CountedModel model = counted_model({"backbone.attention.type=relative", "memory[0].type=recurrent_tokens"});
  const auto segments = random_segments(4, kRows, kTokens, false);
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::vector<BpttSegment> inputs;
  for (const auto& segment : segments) inputs.push_back({tasks::model_input(segment, core::Mode::train), {}});
  std::optional<at::Tensor> after_forward;
  EXPECT_THROW(backward_segments(
                   model, inputs, model.initial_state(kRows),
                   [&](const core::StepResult& step, size_t index) {
                     if (index == 3) after_forward = generator.get_state();
                     if (index == 1) throw std::runtime_error("stop");
                     return step.hidden.sum();
                   },
                   BpttForm::sliding, 0),
               std::runtime_error);
  EXPECT_TRUE(at::equal(generator.get_state(), after_forward.value()));
}

/// The peak bytes of a step in addition to what existed before it.
int64_t peak_bytes(const std::vector<std::string>& assignments, int64_t count, int64_t stored_bytes,
                   bool recompute_layers = false) {
  const CountedModel model = counted_model(assignments, "dim = 64\nffn_dim = 128\n");
  const auto segments = random_segments(count, 2, 64, false);
  std::vector<BpttSegment> inputs;
  for (const auto& segment : segments) inputs.push_back({tasks::model_input(segment, core::Mode::train), {}});
  for (BpttSegment& input : inputs) input.input.recompute_layers = recompute_layers;
  int64_t peak = 0;
  for (int64_t run = 0; run < 2; ++run) {  // the second run has gradients to add to
    const core::State state = core::detach(model.initial_state(2));
    const TensorMeter meter;
    backward_segments(
        model, inputs, state,
        [&](const core::StepResult& step, size_t index) {
          return tasks::token_loss(model, step, segments[index], 100, 0.1).total;
        },
        BpttForm::sliding, stored_bytes);
    peak = meter.peak();
  }
  return peak;
}

TEST(RecomputeMemory, OfManySegmentsIsThatOfTwo) {
  const std::string relative = "backbone.attention.type=relative", rmt = "memory[0].type=recurrent_tokens",
                    two = "memory[0].num_mem_tokens=2";
  const auto growth = [&](const std::vector<std::string>& assignments, int64_t stored_bytes) {
    return static_cast<double>(peak_bytes(assignments, 64, stored_bytes)) /
           static_cast<double>(peak_bytes(assignments, 2, stored_bytes));
  };
  EXPECT_LE(growth({relative, rmt, two}, 0), 1.15);
  EXPECT_GE(growth({relative, rmt, two}, kStoreAll), 10.0);
  EXPECT_LE(growth({relative, rmt, two, "memory[0].bptt_depth=1"}, 0), 1.15);
  EXPECT_LE(growth({relative, "memory[0].type=segment_cache", "memory[0].mem_len=64"}, kStoreAll), 1.15);
}

TEST(RecomputeMemory, StaysBelowTheLimitBesideTheSegmentAtWork) {
  const std::vector<std::string> rmt = {"backbone.attention.type=relative", "memory[0].type=recurrent_tokens"};
  const int64_t nothing = peak_bytes(rmt, 16, 0), all = peak_bytes(rmt, 16, kStoreAll);
  for (const int64_t share : {4, 2}) {
    const int64_t limit = (all - nothing) / share, found = peak_bytes(rmt, 16, limit);
    EXPECT_LE(found, nothing + limit) << share;
    EXPECT_GE(found, nothing + limit / 2) << share;  // and it uses the limit
  }
}

// Memory holds the input of each layer, and one layer's graph.
TEST(RecomputeMemory, OfLayersIsThatOfAFewLayers) {
  for (const char* attention : {"softmax", "relative", "abc", "linear"}) {
    const auto peak = [&](int64_t layers, bool recompute) {
      return peak_bytes(
          {std::string("backbone.attention.type=") + attention, fmt::format("backbone.num_layers={}", layers)}, 1,
          kStoreAll, recompute);
    };
    const int64_t rows = 2 * 64 * 64 * 4;  // B T D floats
    EXPECT_LT(3 * peak(16, true), peak(16, false)) << attention;
    EXPECT_LT(peak(16, true) - peak(4, true), 12 * rows * 3 / 2 + 12 * 100'000) << attention;
  }
}

TEST(TensorMeter, CountsWhatIsAliveAndThePeak) {
  const at::Tensor before = at::ones({1000}, at::kFloat);
  const TensorMeter outer;
  at::Tensor a = at::ones({1000}, at::kFloat);
  {
    const TensorMeter inner;
    const at::Tensor b = at::ones({500}, at::kFloat);
    a = at::Tensor();
    EXPECT_EQ(inner.bytes(), 2000);  // memory that it did not see allocated is not subtracted
    EXPECT_EQ(outer.bytes(), 2000);
    EXPECT_EQ(outer.peak(), 6000);
  }
  EXPECT_EQ(outer.bytes(), 0);
  EXPECT_EQ(outer.peak(), 6000);
}

}  // namespace
}  // namespace mnemo::train
