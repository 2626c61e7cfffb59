#include "memory/abc_control/position.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::memory {

AbcSumControl::Writes AbcIdentityControl::writes(const AbcCall& call, const AbcSlots&,
                                                 const at::Tensor& numbers) const {
  require_numbers(call, numbers, slots_, "num_slots");
  return {one_hot(numbers)};
}

AbcLinformerControl::AbcLinformerControl(const Options& options, const AbcControlBuild& build)
    : AbcSumControl("linformer", Keeps::positions, build),
      max_len_(options.max_len),
      weight_(build.scope.share("weight", {build.num_slots, options.max_len}, layers::normal(build.attention.init_std),
                                layers::ParameterKind::memory)) {}

AbcSumControl::Writes AbcLinformerControl::writes(const AbcCall& call, const AbcSlots&,
                                                  const at::Tensor& numbers) const {
  require_numbers(call, numbers, max_len_, "control.max_len");
  // A place of padding may lie behind the table's end.
  const at::Tensor phi = at::embedding(weight_.t(), numbers.clamp_max(max_len_ - 1));
  return {phi, at::ones_like(phi, phi.options().requires_grad(false))};
}

AbcLocalToGlobalControl::AbcLocalToGlobalControl(const Options& options, const AbcControlBuild& build)
    : AbcSumControl("local_to_global", Keeps::positions, build), positions_(options.global_positions) {
  base::require(static_cast<int64_t>(positions_.size()) == build.num_slots,
                "ABC: control 'local_to_global' expected as many global_positions as num_slots = {}, found {}",
                build.num_slots, positions_.size());
}

AbcSumControl::Writes AbcLocalToGlobalControl::writes(const AbcCall& call, const AbcSlots&,
                                                      const at::Tensor& numbers) const {
  return {numbers.unsqueeze(-1).eq(at::tensor(positions_, numbers.options())).to(call.k.scalar_type())};
}

AbcSumControl::Writes AbcCompressiveControl::writes(const AbcCall& call, const AbcSlots&,
                                                    const at::Tensor& numbers) const {
  require_numbers(call, numbers, slots_ * compression_, "num_slots * control.compression");
  const at::Tensor tokens = one_hot(at::floor_divide(numbers, compression_));
  return {tokens / static_cast<double>(compression_), tokens};
}

}  // namespace mnemo::memory
