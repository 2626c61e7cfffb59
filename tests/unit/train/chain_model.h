#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "core/model.h"
#include "layers/parameters.h"

namespace mnemo::test {

/// The state of ChainModel: a few vectors per sequence and one that belongs to the model.
struct ChainState {
  at::Tensor a, b, shared;
  template <class F>
  void visit(F&& f) {
    f("a", a, "B D");
    f("b", b, "B D");
    f("shared", shared, "1 D");
  }
};

/// A model whose gradients across segments can be written down: input rows x [B,T,D], state fields a and b.
///   hidden = w * x + a + 2 b,   a' = u * a + 3 mean_t(hidden),   b' = tanh(hidden's mean) + v * b,   shared' =
///   mean_b(hidden's mean)
/// w [D], u [D], v [D], and start [D], the learned first a. Each field has its own depth.
class ChainModel final : public core::Model {
 public:
  static constexpr int64_t kDim = 3;

  explicit ChainModel(std::map<std::string, int64_t> depths, at::ScalarType dtype = at::kDouble)
      : depths_(std::move(depths)), parameters_(7, dtype) {
    const layers::Scope root = parameters_.root();
    w_ = root.add("w", {kDim}, layers::normal(1.0));
    u_ = root.add("u", {kDim}, layers::normal(1.0));
    v_ = root.add("v", {kDim}, layers::normal(1.0), layers::ParameterKind::bias);
    start_ = root.add("start", {kDim}, layers::normal(1.0), layers::ParameterKind::memory);
    shared_ = at::zeros({1, kDim}, at::TensorOptions().dtype(dtype));
  }

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    const auto& old = state.as<ChainState>();
    core::StepResult step;
    step.hidden = w_ * segment.rows + (old.a + 2 * old.b).unsqueeze(1);
    const at::Tensor mean = step.hidden.mean(1);
    ChainState next;
    next.a = u_ * old.a + 3 * mean;
    next.b = at::tanh(mean) + v_ * old.b;
    next.shared = segment.mode == core::Mode::train ? mean.mean(0, true).detach() : old.shared;
    step.state = next;
    return step;
  }
  core::State initial_state(int64_t batch) const override {
    return ChainState{start_.expand({batch, kDim}), at::zeros({batch, kDim}, start_.options().requires_grad(false)),
                      shared_};
  }
  void commit(const core::State& state) override { shared_ = state.as<ChainState>().shared.detach().clone(); }
  int64_t bptt_depth(const std::string& path) const override { return depths_.at(path); }

  at::Tensor logits(const at::Tensor& hidden) const override { return hidden; }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor&) const override { return hidden.square().sum(-1); }
  const layers::ParameterSet& parameters() const override { return parameters_; }
  const core::ModelInput& input() const override { return input_; }

 private:
  std::map<std::string, int64_t> depths_;
  layers::ParameterSet parameters_;
  at::Tensor w_, u_, v_, start_, shared_;
  core::ModelInput input_ = core::TokenInput{kDim, 2};
};

}  // namespace mnemo::test
