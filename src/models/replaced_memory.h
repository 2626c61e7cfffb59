#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/level_head.h"
#include "core/model.h"

namespace mnemo::models {

/// A model whose memory is replaced at the start of each segment, the first one included: a test of whether the model
/// uses its memory.
///   zeros   every field of the state that has channels, of a sequence or of the model, is 0
///   noise   such a field is mean + deviation * N(0, 1), with the mean and the deviation of its own numbers
/// Infinite values, masks, sums of weights and counters are kept, so the model reads as many rows as before, with the
/// same weights. For evaluation only.
class ReplacedMemory : public core::Model, public core::ReadsLevels {
 public:
  enum class With { zeros, noise };
  /// `with` as text. Throws InputError naming `who` for another word, and for a model that carries no memory
  /// or one of no rows.
  ReplacedMemory(const core::Model& model, std::string_view with, std::string_view who, uint64_t seed = 0);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override { return model_.initial_state(batch); }
  void commit(const core::State&) override { throw base::InternalError("a replaced memory is for evaluation"); }
  int64_t bptt_depth(const std::string& path) const override { return model_.bptt_depth(path); }
  at::Tensor logits(const at::Tensor& hidden) const override { return model_.logits(hidden); }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return model_.nll(hidden, targets);
  }
  const layers::ParameterSet& parameters() const override { return model_.parameters(); }
  const core::ModelInput& input() const override { return model_.input(); }
  const core::LevelHead* level_head() const override { return core::level_head(model_); }

 protected:
  core::State replaced(const core::State& state) const;
  const core::Model& model() const { return model_; }

 private:
  /// Whether the memory meets new text with this segment.
  virtual bool begins(const core::Segment& segment) const { return segment.part.starts; }

  const core::Model& model_;
  With with_;
  at::Generator generator_;
};

/// A translation model with a replaced memory.
class ReplacedPairMemory final : public ReplacedMemory, public core::ReadsSource {
 public:
  using ReplacedMemory::ReplacedMemory;
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& before,
                          const core::HiddenObserver& hidden = {}) const override {
    return core::source_reader(model()).read_source(source, valid, mode, replaced(before), hidden);
  }

 private:
  /// Without a new source the state holds the encoder's output of the last one, which is no memory.
  bool begins(const core::Segment& segment) const override { return segment.part.starts && segment.source.defined(); }
};

/// The model with its memory replaced: a ReplacedPairMemory of one that reads a source.
std::unique_ptr<core::Model> replaced_memory(const core::Model& model, std::string_view with, std::string_view who,
                                             uint64_t seed = 0);

}  // namespace mnemo::models
