// Inspecting an attention changes nothing and shows what it really did.
#include "core/inspection.h"
#include "core/backbone.h"

#include <set>

#include "inspect/attention_record.h"
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

class Inspection : public Conformance {};

core::Segment whole_segment(const at::Tensor& tokens, const at::Tensor& valid = {}) {
  core::Segment segment;
  segment.tokens = tokens;
  segment.valid = valid;
  return segment;
}

TEST_P(Inspection, RecordingChangesNoBit) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  inspect::AttentionRecorder recorder(*model, 2);
  core::State state = model->initial_state(2);
  Numbers numbers(6);
  for (int i = 0; i < 3; ++i) {
    const core::Segment segment = whole_segment(numbers.tokens({2, 5}, kVocab));
    const core::StepResult alone = model->forward(segment, state);
    core::StepResult watched;
    if (i == 1) {
      int64_t layer = 0;
      watched = model->forward(
          segment, state,
          [&](int64_t at, const core::Attention& attention, const core::AttentionInput& input, const core::State& own) {
            EXPECT_EQ(at, layer++);
            if (const auto* inspectable = dynamic_cast<const core::Inspectable*>(&attention))
              inspectable->inspect(input, own, {});
          });
      EXPECT_EQ(layer, model->backbone().num_layers());
      recorder.record(segment, {0, 1});
    } else {
      watched = recorder.run(segment);
    }
    EXPECT_TRUE(same_bits(watched.hidden, alone.hidden)) << "segment " << i;
    EXPECT_EQ(state_difference(watched.state, alone.state, 0.0), "") << "segment " << i;
    state = alone.state;
  }
}

TEST_P(Inspection, WeightsAreSharesOfWhatMayBeSeen) {
  auto model = make_model(config().options);
  const at::NoGradGuard no_grad;
  inspect::AttentionRecorder recorder(*model, 2);
  Numbers numbers(7);
  recorder.run(whole_segment(numbers.tokens({2, 5}, kVocab)));
  const at::Tensor valid = at::tensor({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, at::kLong).view({2, 5}).to(at::kBool);
  const auto records = recorder.record(whole_segment(numbers.tokens({2, 5}, kVocab), valid), {0, 1});
  ASSERT_EQ(records.size(), 2u);
  for (const inspect::LayerRecord& layer : records) {
    const core::AttendTable& table = layer.mask.table;
    const int64_t queries = table.num_rows(), keys = table.num_keys();
    at::Tensor allowed = table.expand();
    if (allowed.dim() == 3) allowed = allowed.unsqueeze(1);
    // Every attention of the suite shows what it did, also inside a memory.
    ASSERT_FALSE(layer.view.maps.empty()) << "layer " << layer.layer;
    EXPECT_EQ(layer.view.maps[0].name, "attention") << "layer " << layer.layer;
    for (const core::WeightMap& map : layer.view.maps) {
      const std::string where = fmt::format("layer {}, {}", layer.layer, map.name);
      ASSERT_EQ(map.weights.dim(), 4) << where;
      if (map.rows != core::MapAxis::queries) continue;
      EXPECT_EQ(map.weights.size(2), queries) << where;
      if (map.columns == core::MapAxis::keys) {
        ASSERT_EQ(map.weights.size(3), keys) << where;
        // The arena's hashing does not mask.
        const double unseen = config().attention() == "lsh" ? 0.0 : largest(map.weights.masked_fill(allowed, 0.0));
        EXPECT_EQ(unseen, 0.0) << where << ": weight of a key that may not be seen";
      }
      // The others need not divide by the sum of their weights, which may have any sign.
      const std::set<std::string> softmax = {"softmax", "relative",         "sliding_window",
                                             "bigbird", "relative_buckets", "disentangled"};
      const bool same_reader = config().memory_option("grc", "mem_attention", "softmax").as_string() == "same";
      if (map.name == "grc_cache" ? same_reader : !softmax.contains(config().attention())) continue;
      EXPECT_GE(map.weights.min().item<double>(), 0.0) << where;
      const at::Tensor sums = map.weights.sum(-1), none = sums == 0.0;
      EXPECT_LE(difference(at::where(none, at::ones_like(sums), sums), at::ones_like(sums)), 1e-12) << where;
    }
    for (const core::GateValues& gate : layer.view.gates) {
      EXPECT_GT(gate.values.min().item<double>(), 0.0) << gate.name;
      EXPECT_LT(gate.values.max().item<double>(), 1.0) << gate.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Inspection, testing::ValuesIn(configurations()), name_of);

}  // namespace
}  // namespace mnemo::test
