#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "ops/linear/packed_linear.h"

namespace mnemo::ops {

/// Weights of linear maps, packed once for inference and found by the tensor that they were packed from.
class PackedMaps {
 public:
  /// Packs a weight [out,in], or a kernel [out,in,r,s] as the map [out,r*s*in] of patches, as it is at this moment:
  /// what changes later is not seen. Leaves out what is not contiguous float32 on the CPU, and kernels of one channel.
  /// The tensor is kept alive.
  void add(const at::Tensor& weight);
  /// The packed form of the very weight or kernel; null without one.
  const PackedLinear* find(const at::Tensor& weight) const;
  bool empty() const { return maps_.empty(); }

 private:
  struct Entry {
    at::Tensor weight;
    PackedLinear packed;
  };
  std::unordered_map<const void*, Entry> maps_;
};

/// While it lives, this thread's linear maps and feed-forwards that keep no graph multiply with what is packed in
/// `maps`. The innermost guard counts.
class PackedMapsGuard {
 public:
  explicit PackedMapsGuard(const PackedMaps& maps);
  ~PackedMapsGuard();
  PackedMapsGuard(const PackedMapsGuard&) = delete;
  PackedMapsGuard& operator=(const PackedMapsGuard&) = delete;

 private:
  const PackedMaps* before_;
};

/// What the innermost guard of this thread has for a weight or a kernel; null without one.
const PackedLinear* packed_now(const at::Tensor& weight);

}  // namespace mnemo::ops
