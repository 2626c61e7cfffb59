#pragma once

#include <memory>
#include <utility>

#include "base/stop.h"
#include "core/level_head.h"
#include "core/model.h"
#include "core/state.h"

namespace mnemo::models {

/// A model that asks before each call whether to go on, and throws base::Stopped if not: any evaluation of it can be
/// stopped at each step.
class Stoppable : public core::Model, public core::ReadsLevels {
 public:
  Stoppable(std::shared_ptr<const core::Model> model, base::ShouldStop should_stop)
      : model_(std::move(model)), should_stop_(std::move(should_stop)) {}

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    ask();
    return model_->forward(segment, state);
  }
  core::State carried(const core::State& state) const override { return model_->carried(state); }
  core::State initial_state(int64_t batch) const override { return model_->initial_state(batch); }
  void commit(const core::State&) override { throw base::InternalError("an evaluation commits nothing"); }
  int64_t bptt_depth(const std::string& path) const override { return model_->bptt_depth(path); }
  at::Tensor logits(const at::Tensor& hidden) const override { return model_->logits(hidden); }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return model_->nll(hidden, targets);
  }
  const layers::ParameterSet& parameters() const override { return model_->parameters(); }
  const core::ModelInput& input() const override { return model_->input(); }
  const core::LevelHead* level_head() const override { return core::level_head(*model_); }

 protected:
  void ask() const { base::stop_if_asked(should_stop_, "evaluation"); }
  const core::Model& model() const { return *model_; }

 private:
  std::shared_ptr<const core::Model> model_;
  base::ShouldStop should_stop_;
};

/// A translation model that asks.
class StoppablePairModel final : public Stoppable, public core::ReadsSource {
 public:
  using Stoppable::Stoppable;
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& before,
                          const core::HiddenObserver& hidden = {}) const override {
    ask();
    return core::source_reader(model()).read_source(source, valid, mode, before, hidden);
  }
};

/// The model that asks: a StoppablePairModel of one that reads a source. Without a question the model itself.
inline std::shared_ptr<const core::Model> stoppable(std::shared_ptr<const core::Model> model,
                                                    const base::ShouldStop& should_stop) {
  if (!should_stop) return model;
  if (dynamic_cast<const core::ReadsSource*>(model.get()) != nullptr)
    return std::make_shared<const StoppablePairModel>(std::move(model), should_stop);
  return std::make_shared<const Stoppable>(std::move(model), should_stop);
}

}  // namespace mnemo::models
