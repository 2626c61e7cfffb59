#pragma once

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "core/model.h"

namespace mnemo::test {

/// A model small enough to compute by hand, with a memory of every lifetime, that checks how it is called.
///   E [V,D], rows of the open segment x_1..x_t, memory m, window w of the last kWindow rows, shared s [D]
///   hidden_t = sin(E[token_t] + m + s + sum_{i<=t} x_i / 4 + sum(w));  at the segment's end m = hidden_t
struct FakeState {
  at::Tensor memory, rows, valid, window, window_valid, shared, count;
  template <class F>
  void visit(F&& f) {
    f("memory", memory, "B D");
    f("rows", rows, "B M D");
    f("valid", valid, "B M");
    f("window", window, "B M D");
    f("window_valid", window_valid, "B M");
    f("shared", shared, "D");
    f("count", count, "B");
  }
};

class FakeModel : public core::Model {
 public:
  static constexpr int64_t kWidth = 6, kWindow = 5;

  FakeModel(int64_t vocab, int64_t segment_size, uint64_t seed = 1)
      : vocab_(vocab),
        segment_size_(segment_size),
        input_(core::TokenInput{vocab, segment_size}),
        parameters_(seed, at::kDouble) {
    embedding_ = parameters_.root().add("embed", {vocab, kWidth}, layers::normal(1.0));
    shared_ = at::zeros({kWidth}, at::kDouble);
  }

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    const auto& past = state.as<FakeState>();
    const int64_t batch = segment.tokens.size(0), tokens = segment.tokens.size(1);
    base::ensure(past.memory.size(0) == batch, "fake model: {} sequences in the state, {} in the batch",
                 past.memory.size(0), batch);
    base::ensure(segment.part.starts != past.rows.defined(),
                 "fake model: starts and an open segment contradict one another");
    if (segment.part.starts || segment.part.ends) {
      const at::Tensor counts = past.count + tokens;
      base::ensure(counts.min().item<int64_t>() == counts.max().item<int64_t>(),
                   "fake model: sequences are not aligned");
      const bool full = counts.min().item<int64_t>() == segment_size_;
      base::ensure(segment.part.ends || !full, "fake model: wrong end");
      if (segment.part.ends && !full) ++early_ends;
    }
    base::ensure((past.count + tokens).max().item<int64_t>() <= segment_size_, "fake model: beyond the segment");
    ++calls;
    largest_batch = std::max(largest_batch, batch);

    const at::Tensor x = embedding_.detach().index({segment.tokens});
    const at::Tensor real = at::ones({batch, tokens}, at::kBool);
    FakeState next = past;
    next.rows = past.rows.defined() ? at::cat({past.rows, x}, 1) : x;
    next.valid = past.rows.defined() ? at::cat({past.valid, real}, 1) : real;
    widest = std::max(widest, next.rows.size(1));
    auto total = [](const at::Tensor& rows, const at::Tensor& valid) {
      return at::where(valid.unsqueeze(-1), rows, at::zeros({}, rows.options())).sum(1, true);
    };
    at::Tensor before = past.memory.unsqueeze(1) + past.shared;
    if (past.rows.defined()) before = before + total(past.rows, past.valid) / 4;
    before = before + total(past.window, past.window_valid);
    const at::Tensor hidden = at::sin(x + before + x.cumsum(1) / 4);

    if (segment.part.ends) {
      const at::Tensor window = at::cat({past.window, next.rows}, 1),
                       valid = at::cat({past.window_valid, next.valid}, 1);
      const int64_t kept = std::min(kWindow, window.size(1));
      next.window = window.narrow(1, window.size(1) - kept, kept);
      next.window_valid = valid.narrow(1, window.size(1) - kept, kept);
      next.memory = hidden.select(1, tokens - 1);
      next.rows = at::Tensor();
      next.valid = at::Tensor();
      next.count = at::zeros({batch}, at::kLong);
    } else {
      next.count = past.count + tokens;
    }
    return {hidden, {}, next};
  }

  core::State initial_state(int64_t batch) const override {
    FakeState state;
    state.memory = at::zeros({batch, kWidth}, at::kDouble);
    state.window = at::zeros({batch, 0, kWidth}, at::kDouble);
    state.window_valid = at::zeros({batch, 0}, at::kBool);
    state.shared = shared_;
    state.count = at::zeros({batch}, at::kLong);
    return state;
  }
  void commit(const core::State& state) override { shared_ = state.as<FakeState>().shared; }
  int64_t bptt_depth(const std::string&) const override { return 0; }
  at::Tensor logits(const at::Tensor& hidden) const override { return 3 * hidden.matmul(embedding_.detach().t()); }
  at::Tensor nll(const at::Tensor&, const at::Tensor&) const override { throw base::InternalError("not needed"); }
  const layers::ParameterSet& parameters() const override { return parameters_; }
  const core::ModelInput& input() const override { return input_; }

  mutable int64_t calls = 0, largest_batch = 0, widest = 0, early_ends = 0;

 private:
  int64_t vocab_, segment_size_;
  core::ModelInput input_;
  layers::ParameterSet parameters_;
  at::Tensor embedding_, shared_;
};

}  // namespace mnemo::test
