#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "models/source_side.h"
#include "models/token_side.h"

namespace mnemo::models {

/// A translation model.
///   Segment.source [B,S] -> SourceSide; Segment.tokens [B,U] -> TokenSide, with cross-attention to the encoder's
///   output -> hidden [B,U,D]
/// State: "layers" and "open" of the target's TokenSide, which has no memories, and "source".
class PairModel final : public Model, public core::ReadsSource {
 public:
  static constexpr core::InputKind kInput = core::InputKind::pairs;
  PairModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
            at::Device device = at::kCPU);

  core::State initial_state(int64_t batch) const override;
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& before,
                          const core::HiddenObserver& hidden = {}) const override;
  core::State carried(const core::State& state) const override;
  int64_t bptt_depth(const std::string& path) const override;
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override {
    return target_.auxiliary_losses(step, source_.memories());
  }
  const core::Backbone& backbone() const override { return target_.backbone(); }
  const core::Head* head_or_null() const override { return target_.head(); }
  bool sees_ahead() const override { return target_.sees_ahead(); }

  const core::PairInput& vocabularies() const { return core::pair_input(input_); }
  const SourceSide& source() const { return source_; }
  const TokenSide& target() const { return target_; }

 private:
  core::StepResult run(const core::Segment& segment, const core::State& state, const core::AttentionObserver& observe,
                       const core::HiddenObserver& hidden) const override;
  TokenEmbeddings make_embedding();
  SourceSide make_source();
  TokenSide::Parts make_target();
  /// The state in which a target begins, of a model whose source has been read.
  core::State begin_target(int64_t batch, core::State source) const;

  TokenEmbeddings embedding_;  ///< of the target
  SourceSide source_;
  TokenSide target_;
};

}  // namespace mnemo::models
