#include "memory/abc_control/position.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::memory {

AbcSumControl::Writes AbcIdentityControl::writes(const AbcCall& call, const AbcSlots&,
                                                 const at::Tensor& numbers) const {
  require_numbers(call, numbers);
  return {one_hot(numbers)};
}

void AbcIdentityControl::write(int64_t number, int64_t, float* phi, float* tokens) const {
  phi[number] = tokens[number] = 1.0f;
}

AbcLinformerControl::AbcLinformerControl(const Options& options, const AbcControlBuild& build)
    : AbcSumControl("linformer", Keeps::positions, build),
      max_len_(options.max_len),
      weight_(build.scope.share("weight", {build.num_slots, options.max_len}, layers::normal(build.attention.init_std),
                                layers::ParameterKind::memory)) {}

AbcSumControl::Writes AbcLinformerControl::writes(const AbcCall& call, const AbcSlots&,
                                                  const at::Tensor& numbers) const {
  require_numbers(call, numbers);
  // Positions of padding may exceed the table.
  const at::Tensor phi = at::embedding(weight_.t(), numbers.clamp_max(max_len_ - 1));
  return {phi, at::ones_like(phi, phi.options().requires_grad(false))};
}

void AbcLinformerControl::write(int64_t number, int64_t, float* phi, float* tokens) const {
  const float* weight = weight_.const_data_ptr<float>();
  for (int64_t j = 0; j < slots_; ++j) {
    phi[j] = weight[j * max_len_ + number];
    tokens[j] = 1.0f;
  }
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

void AbcLocalToGlobalControl::write(int64_t number, int64_t, float* phi, float* tokens) const {
  for (int64_t j = 0; j < slots_; ++j) phi[j] = tokens[j] = positions_[static_cast<size_t>(j)] == number ? 1.0f : 0.0f;
}

void AbcCompressiveControl::write(int64_t number, int64_t, float* phi, float* tokens) const {
  phi[number / compression_] = 1.0f / static_cast<float>(compression_);
  tokens[number / compression_] = 1.0f;
}

AbcSumControl::Writes AbcCompressiveControl::writes(const AbcCall& call, const AbcSlots&,
                                                    const at::Tensor& numbers) const {
  require_numbers(call, numbers);
  const at::Tensor tokens = one_hot(at::floor_divide(numbers, compression_));
  return {tokens / static_cast<double>(compression_), tokens};
}

}  // namespace mnemo::memory
