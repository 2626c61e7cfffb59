#include "ops/linear/packed_maps.h"

#include <torch/types.h>

#include <utility>

namespace mnemo::ops {
namespace {

thread_local const PackedMaps* maps_now = nullptr;

}  // namespace

void PackedMaps::add(const at::Tensor& weight, Precision precision) {
  const bool is_map = weight.dim() == 2, is_kernel = weight.dim() == 4 && weight.size(1) > 1;
  if (!(is_map || is_kernel) || !weight.is_cpu() || weight.scalar_type() != at::kFloat || !weight.is_contiguous() ||
      weight.numel() == 0)
    return;
  const at::Tensor plain = weight.detach(), map = is_map ? plain : plain.permute({0, 2, 3, 1}).flatten(1);
  maps_.try_emplace(plain.const_data_ptr(), Entry{plain, PackedLinear(map, {}, precision)});
}

const PackedLinear* PackedMaps::find(const at::Tensor& weight) const {
  const auto found = maps_.find(weight.const_data_ptr());
  if (found == maps_.end()) return nullptr;
  const Entry& entry = found->second;
  const bool same = weight.is_contiguous() && weight.sizes() == entry.weight.sizes() &&
                    weight.scalar_type() == at::kFloat;
  return same ? &entry.packed : nullptr;
}

PackedMapsGuard::PackedMapsGuard(const PackedMaps& maps) : before_(std::exchange(maps_now, &maps)) {}
PackedMapsGuard::~PackedMapsGuard() { maps_now = before_; }

const PackedLinear* packed_now(const at::Tensor& weight) {
  return maps_now == nullptr ? nullptr : maps_now->find(weight);
}

}  // namespace mnemo::ops
