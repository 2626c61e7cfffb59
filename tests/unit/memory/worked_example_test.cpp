// The worked example of CONTRIBUTING.md: a memory of one's own, its registry line, and the laws it keeps.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/option_poly.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "memory/registry.h"

namespace mnemo {
namespace {

// [running_mean.h]
struct RunningMeanOptions {
  double decay = 0.9;
  template <class V>
  void visit(V&& v) {
    v("decay", decay, "how much of the old mean is kept at every segment", base::range(0.0, 1.0));
  }
};

struct RunningMeanState {
  std::vector<at::Tensor> means;  // [B,1,D] for each layer
  at::Tensor valid;               // [B,1] bool: whether a segment has been seen
  template <class F>
  void visit(F&& f) {
    for (size_t layer = 0; layer < means.size(); ++layer) f("layers." + std::to_string(layer), means[layer], "B 1 D");
    f("valid", valid, "B 1");
  }
};

/// Every layer sees one row beside its own: the running mean of the rows that entered it in earlier segments.
///   mean' = decay * mean + (1 - decay) * mean over the segment's rows
class RunningMean final : public core::LayerContext {
 public:
  using Options = RunningMeanOptions;
  RunningMean(const Options& options, const core::MemoryBuild& build) : options_(options), build_(build) {}

  core::State initial_state(int64_t batch) const override {
    const auto options = build_.like.options().requires_grad(false);
    RunningMeanState state;
    state.means.resize(static_cast<size_t>(build_.num_layers));
    for (const int64_t layer : build_.layers) {
      state.means[static_cast<size_t>(layer)] = at::zeros({batch, 1, build_.dim}, options);
    }
    state.valid = at::zeros({batch, 1}, options.dtype(at::kBool));
    return state;
  }

  void add_spans(core::AttendTable& table, const core::State&, core::Mode) const override {
    table.append_context({core::SpanKind::cache, 1}, core::Rule::all());
  }

  at::Tensor valid(const core::State& state) const override { return state.as<RunningMeanState>().valid; }

  at::Tensor before(int64_t layer, const at::Tensor&, const core::State& state) const override {
    return state.as<RunningMeanState>().means[static_cast<size_t>(layer)];
  }

  core::State after(const std::vector<at::Tensor>& entering, const at::Tensor&, const core::AttendTable&,
                    const core::State& state, core::Mode) const override {
    const auto& old = state.as<RunningMeanState>();
    RunningMeanState next;
    next.means.resize(old.means.size());
    for (const int64_t served : build_.layers) {
      const auto layer = static_cast<size_t>(served);
      const at::Tensor fresh = entering[layer].detach().mean(1, true);
      const at::Tensor moved = options_.decay * old.means[layer] + (1.0 - options_.decay) * fresh;
      next.means[layer] = at::where(old.valid.unsqueeze(-1), moved, fresh);
    }
    next.valid = at::ones_like(old.valid);
    return next;
  }

 private:
  Options options_;
  core::MemoryBuild build_;
};
// [end]

class WorkedExample : public testing::Test {
 protected:
  WorkedExample() {
    like_ = parameters_.root().add("like", {1}, layers::constant(0.0));
    // The registry line, as `add<RunningMean>(types, entries, "running_mean", "...")` in memory/registry.cpp makes it.
    types_.add<RunningMeanOptions>("running_mean", "the mean of earlier segments");
    const base::Node table = types_.complete(base::Node::table({{"type", "running_mean"}, {"decay", 0.5}}));
    memory_ = std::make_unique<RunningMean>(base::read_typed_options<RunningMeanOptions>(table),
                                            core::MemoryBuild{parameters_.root(), 2, {0, 1}, 3, like_});
  }

  core::State step(const core::State& state, const at::Tensor& rows) const {
    const core::AttendTable table({core::SpanKind::tokens, rows.size(1)});
    return memory_->after({rows, 2 * rows}, {}, table, state, core::Mode::evaluate);
  }

  layers::ParameterSet parameters_{0, at::kDouble};
  at::Tensor like_;
  base::OptionTypes types_{"memory"};
  std::unique_ptr<core::LayerContext> memory_;
};

TEST_F(WorkedExample, KeepsTheMean) {
  const at::Tensor a = at::rand({2, 4, 3}, at::kDouble), b = at::rand({2, 5, 3}, at::kDouble);
  const core::State state = step(step(memory_->initial_state(2), a), b);
  const at::Tensor expected = 0.5 * a.mean(1, true) + 0.5 * b.mean(1, true);
  EXPECT_TRUE(at::allclose(memory_->before(0, {}, state), expected, 0, 1e-12));
  EXPECT_TRUE(at::allclose(memory_->before(1, {}, state), 2 * expected, 0, 1e-12));
}

TEST_F(WorkedExample, TheFirstSegmentSeesNothing) {
  EXPECT_FALSE(memory_->valid(memory_->initial_state(2)).any().item<bool>());
}

TEST_F(WorkedExample, SelectingRowsIsRecomputing) {
  const at::Tensor a = at::rand({3, 4, 3}, at::kDouble), rows = at::tensor({2, 0}, at::kLong);
  const core::State all = core::select_batch(step(memory_->initial_state(3), a), rows);
  const core::State alone = step(memory_->initial_state(2), a.index_select(0, rows));
  EXPECT_TRUE(at::equal(memory_->before(1, {}, all), memory_->before(1, {}, alone)));
}

TEST_F(WorkedExample, ADocumentStartsAgain) {
  const core::State state = step(memory_->initial_state(2), at::rand({2, 4, 3}, at::kDouble));
  const core::State reset = core::reset_rows(state, at::tensor({1, 0}, at::kInt).to(at::kBool),
                                             memory_->initial_state(2));
  EXPECT_FALSE(memory_->valid(reset)[0].item<bool>());
  EXPECT_TRUE(memory_->valid(reset)[1].item<bool>());
}

}  // namespace
}  // namespace mnemo
