#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "ops/linear/packed_linear.h"

namespace mnemo::ops {

/// Weights of linear layers, packed once for inference and looked up by their original tensor.
class PackedMaps {
 public:
  /// Packs a weight [out,in], or a kernel [out,in,r,s] as the map [out,r*s*in] of patches, with its current values;
  /// later changes have no effect. Skips tensors that are not contiguous float32 on the CPU, and kernels of one
  /// channel. The tensor is kept alive.
  void add(const at::Tensor& weight, Precision precision = Precision::float32);
  /// The packed form of exactly this weight or kernel; null if there is none.
  const PackedLinear* find(const at::Tensor& weight) const;
  bool empty() const { return maps_.empty(); }

 private:
  struct Entry {
    at::Tensor weight;
    PackedLinear packed;
  };
  std::unordered_map<const void*, Entry> maps_;
};

/// During its lifetime, linear layers and feed-forwards of this thread that need no graph use the packed weights in
/// `maps`. The innermost guard applies.
class PackedMapsGuard {
 public:
  explicit PackedMapsGuard(const PackedMaps& maps);
  ~PackedMapsGuard();
  PackedMapsGuard(const PackedMapsGuard&) = delete;
  PackedMapsGuard& operator=(const PackedMapsGuard&) = delete;

 private:
  const PackedMaps* before_;
};

/// The packed form from the innermost guard of this thread; null if there is none.
const PackedLinear* packed_now(const at::Tensor& weight);

}  // namespace mnemo::ops
