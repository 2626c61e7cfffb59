#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "models/token_side.h"

namespace mnemo::models {

/// Segment.tokens [B,T] -> TokenSide -> hidden [B,T,D], or [B,1,D] with a head that classifies. State: TokenSide's.
class TextModel final : public Model {
 public:
  static constexpr core::InputKind kInput = core::InputKind::tokens;
  TextModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
            at::Device device = at::kCPU);

  core::State initial_state(int64_t batch) const override { return committed_.apply(side_.initial_state(batch)); }
  int64_t bptt_depth(const std::string& path) const override { return side_.bptt_depth(path); }
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override {
    return side_.auxiliary_losses(step, side_.memories());
  }
  const core::Backbone& backbone() const override { return side_.backbone(); }
  const core::Head* head_or_null() const override { return side_.head(); }
  bool sees_ahead() const override { return side_.sees_ahead(); }

  /// 0 in a layer_stack.
  int64_t vocab_size() const { return core::token_input(input_).vocab_size; }
  int64_t segment_size() const { return core::token_input(input_).segment_size; }
  const TokenSide& tokens() const { return side_; }
  const SegmentMemories& memories() const { return side_.memories(); }
  /// As TokenSide::attend_tables.
  std::vector<LayerTable> attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const {
    return side_.attend_tables(tokens, state, mode);
  }

 private:
  core::StepResult run(const core::Segment& segment, const core::State& state, const core::AttentionObserver& observe,
                       const core::HiddenObserver& hidden) const override;
  TokenSide::Parts make_parts();

  TokenSide side_;
};

}  // namespace mnemo::models
