#include "memory/abc_control/assigned.h"

#include <torch/types.h>

#include <vector>

#include "core/draws.h"
#include "layers/parts.h"
#include "ops/abc/abc_slots.h"

namespace mnemo::memory {

AbcSumControl::Writes AbcRandomControl::writes(const AbcCall& call, const AbcSlots& past,
                                               const at::Tensor& numbers) const {
  if (call.slot_index.defined()) return {one_hot(given_slots(call))};
  const auto layer = static_cast<uint64_t>(layer_);
  if (!past.draw.defined()) return {one_hot(ops::random_slots(numbers, slots_, core::drawn_seed(seed_, 0), layer))};
  std::vector<at::Tensor> rows;
  const at::Tensor draws = past.draw.to(at::kCPU);
  for (int64_t b = 0; b < numbers.size(0); ++b)
    rows.push_back(ops::random_slots(numbers[b], slots_, core::drawn_seed(seed_, draws[b].item<int64_t>()), layer));
  return {one_hot(at::stack(rows))};
}

void AbcRandomControl::write(int64_t number, int64_t draw, float* phi, float* tokens) const {
  const int64_t slot = ops::random_slot(number, slots_, core::drawn_seed(seed_, draw), static_cast<uint64_t>(layer_));
  phi[slot] = tokens[slot] = 1.0f;
}

AbcSumControl::Writes AbcClusteringControl::writes(const AbcCall& call, const AbcSlots& past, const at::Tensor&) const {
  if (call.slot_index.defined()) return {one_hot(given_slots(call))};
  using layers::AttentionProjections;
  return {one_hot(
      ops::nearest_means(AttentionProjections::join(call.k), AttentionProjections::join(past.k), past.z, call.valid))};
}

}  // namespace mnemo::memory
