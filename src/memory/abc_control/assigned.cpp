#include "memory/abc_control/assigned.h"

#include <torch/types.h>

#include "layers/parts.h"
#include "ops/abc/abc_slots.h"

namespace mnemo::memory {

AbcSumControl::Writes AbcRandomControl::writes(const AbcCall& call, const AbcSlots&, const at::Tensor& numbers) const {
  if (call.slot_index.defined()) return {one_hot(given_slots(call))};
  return {one_hot(ops::random_slots(numbers, slots_, static_cast<uint64_t>(seed_), static_cast<uint64_t>(layer_)))};
}

void AbcRandomControl::write(int64_t number, float* phi, float* tokens) const {
  const int64_t slot = ops::random_slot(number, slots_, static_cast<uint64_t>(seed_), static_cast<uint64_t>(layer_));
  phi[slot] = tokens[slot] = 1.0f;
}

AbcSumControl::Writes AbcClusteringControl::writes(const AbcCall& call, const AbcSlots& past, const at::Tensor&) const {
  if (call.slot_index.defined()) return {one_hot(given_slots(call))};
  using layers::AttentionProjections;
  return {one_hot(
      ops::nearest_means(AttentionProjections::join(call.k), AttentionProjections::join(past.k), past.z, call.valid))};
}

}  // namespace mnemo::memory
