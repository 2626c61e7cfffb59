#pragma once

#include "memory/abc_control/control.h"

namespace mnemo::memory {

/// Shared workspace and LUNA (section A.5, eq. 10): the slots of the layer below decide what is written.
///   phi = softmax over tokens of (W_q slots)_h (W_k x)_h^T / sqrt(d),  K = phi k,  V = phi v,
///   slots for the layer above = heads of V concatenated
/// The lowest layer (with layer drop, the lowest that is not skipped) starts from learned slots. Not causal: every slot
/// sees the whole sequence. No state.
class AbcLunaControl final : public AbcControl {
 public:
  using Options = AbcNoOptions;
  AbcLunaControl(const Options&, const AbcControlBuild& build);
  AbcAnswer attend(const AbcCall& call, const core::State& state) const override;
  core::State initial_state(int64_t) const override { return {}; }

 private:
  int64_t heads_, slots_;
  double scale_, control_scale_;
  at::Tensor q_, k_;  // [D,D]
  at::Tensor first_;  // [n,D], the same in every layer
};

}  // namespace mnemo::memory
