// The size of its full state that a memory declares (max_rows) is the size that it reaches.
#include "models/full_state.h"
#include "core/backbone.h"

#include <map>

#include "models/make_attention.h"
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

class FullState : public Conformance {};

TEST_P(FullState, IsWhatTheMemoriesDeclare) {
  const at::NoGradGuard no_grad;
  const auto model = make_model(config().options);
  constexpr int64_t kLength = 4, kSegments = 12;
  const auto limit = models::row_limit(config().options.backbone.stack().attention);
  Numbers numbers(7);
  for (const core::Mode mode : {core::Mode::train, core::Mode::evaluate}) {
    core::State state = model->initial_state(1);
    std::map<std::string, int64_t> most;
    int64_t read = 0;
    for (int i = 0; i < kSegments && (!limit || read + kLength <= limit->rows); ++i) {
      const bool rows = model->options().kind == models::ModelOptions::Kind::layer_stack;
      const at::Tensor input = rows ? numbers.normal({1, kLength, model->backbone().dim()})
                                    : numbers.tokens({1, kLength}, kVocab);
      state = run(*model, input, segments({kLength}), state, mode).state;
      read += kLength;
      for (const auto& [field, tensor] : state.fields()) {
        if (field.dim("M") >= 0) most[field.path] = std::max(most[field.path], tensor.size(field.dim("M")));
      }
      EXPECT_LE(core::num_bytes(state, core::Lifetime::sequence), models::full_state_bytes(*model, mode, INT64_MAX));
    }
    for (const auto& [path, rows] : most) {
      const int64_t declared = models::max_rows(*model, path, mode);
      EXPECT_LE(rows, declared) << path;
      // A memory that is longer than what was read is not full yet; a compressive one reads several rows for one.
      if (4 * declared <= read) {
        EXPECT_GE(2 * rows, declared) << path;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FullState, testing::ValuesIn(configurations()), name_of);

TEST(FullStateBytes, CountsMemoriesThatNoMachineHolds) {
  models::ModelOptions options = configurations().front().options;
  options.backbone.stack().num_layers = 2;
  options.backbone.stack().dim = 8;
  options.memory = {models::ModelOptions::memory_types().read(
      base::Node::table({{"type", "segment_cache"}, {"mem_len", 1 << 24}, {"eval_mem_len", 5}}))};
  const auto model = models::build(options, 1, at::kFloat);
  const int64_t row = 2 * 8 * 4 + 1;  // a vector for each layer, and whether it is real
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::train, INT64_MAX), (int64_t{1} << 24) * row);
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::train, 1000), 1000 * row);
  EXPECT_EQ(models::full_state_bytes(*model, core::Mode::evaluate, INT64_MAX), 5 * row);
}

}  // namespace
}  // namespace mnemo::test
