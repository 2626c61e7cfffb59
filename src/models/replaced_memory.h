#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string_view>

#include "core/model.h"

namespace mnemo::models {

/// A model whose memory is replaced wherever a segment starts, the first one included: a diagnostic of whether it uses
/// what it carries.
///   zeros   every field of the state that has channels, of a sequence or of the model, is 0
///   noise   it is mean + deviation * N(0, 1), with the mean and the deviation of the field's own numbers
/// Masks, sums of weights, counters and values that are not finite stay, so the same rows are read with the same
/// weights. For evaluation only.
class ReplacedMemory final : public core::Model {
 public:
  enum class With { zeros, noise };
  /// `with` as text. Throws InputError naming `who` for another word, and for a model that carries no memory
  /// or one of no rows.
  ReplacedMemory(const core::Model& model, std::string_view with, std::string_view who, uint64_t seed = 0);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override;
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& before,
                          const core::HiddenObserver& hidden = {}) const override {
    return model_.read_source(source, valid, mode, replaced(before), hidden);
  }
  core::State initial_state(int64_t batch) const override { return model_.initial_state(batch); }
  void commit(const core::State&) override { throw base::InternalError("a replaced memory is for evaluation"); }
  int64_t bptt_depth(const std::string& path) const override { return model_.bptt_depth(path); }
  at::Tensor logits(const at::Tensor& hidden) const override { return model_.logits(hidden); }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return model_.nll(hidden, targets);
  }
  const layers::ParameterSet& parameters() const override { return model_.parameters(); }
  const core::ModelInput& input() const override { return model_.input(); }

 private:
  core::State replaced(const core::State& state) const;

  const core::Model& model_;
  With with_;
  at::Generator generator_;
};

}  // namespace mnemo::models
