// What a memory declares of its size at its fullest (max_rows) is what it becomes.
#include "models/full_state.h"
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

class FullState : public Conformance {};

/// Dimension M of a state's fields after many segments.
TEST_P(FullState, IsWhatTheMemoriesDeclare) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(config().options);
  const int64_t segment_size = config().options.segment_size;
  for (const core::Mode mode : {core::Mode::train, core::Mode::evaluate}) {
    core::State state = model->initial_state(1);
    std::map<std::string, int64_t> most;
    for (int i = 0; i < 24; ++i) {
      core::Segment segment;
      segment.tokens = at::zeros({1, segment_size}, at::kLong);
      segment.mode = mode;
      state = model->forward(segment, state).state;
      for (const auto& [field, tensor] : state.fields()) {
        if (field.dim("M") < 0) continue;
        most[field.path] = std::max(most[field.path], tensor.size(field.dim("M")));
      }
      EXPECT_LE(core::num_bytes(state, core::Lifetime::sequence), models::full_state_bytes(*model, mode, INT64_MAX));
      EXPECT_LE(core::num_bytes(state, core::Lifetime::sequence),
                models::full_state_bytes(*model, mode, (i + 1) * (segment_size + 64)))
          << "after so many rows";
    }
    for (const auto& [path, rows] : most) {
      const int64_t declared = models::max_rows(*model, path, mode);
      EXPECT_LE(rows, declared) << path;
      // A memory that is longer than what was read is not full yet.
      if (declared <= 16 * segment_size) {
        EXPECT_GE(rows, config().has("compressive") ? declared / 2 : declared) << path;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configurations, FullState, testing::ValuesIn(configurations()), name_of);

TEST(FullStateBytes, CountsMemoriesThatNoMachineHolds) {
  models::ModelOptions options = configurations().front().options;
  options.backbone.num_layers = 2;
  options.backbone.dim = 8;
  options.memory = {base::Node::table({{"type", "segment_cache"}, {"mem_len", 1 << 24}, {"eval_mem_len", 5}})};
  const auto model = models::build(options, 1, at::kFloat);
  const int64_t row = 2 * 8 * 4 + 1;  // a vector for each layer, and whether it is real
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::train, INT64_MAX), (int64_t{1} << 24) * row);
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::train, 1000), 1000 * row);
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::evaluate, INT64_MAX), 5 * row);
}

}  // namespace
}  // namespace mnemo::test
