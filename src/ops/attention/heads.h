#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace mnemo::ops {

/// One head's rows inside a tensor [B,H,T,d] of any order, d contiguous.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  T* row(int64_t b, int64_t h, int64_t t) const { return data + b * batch_stride + h * head_stride + t * row_stride; }
  explicit operator bool() const { return data != nullptr; }
};

/// The rows of a tensor [B,H,T,d]; null for an undefined one. T is const for read-only access.
template <class T>
Heads<T> heads_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if constexpr (std::is_const_v<T>) {
    return {tensor.const_data_ptr<std::remove_const_t<T>>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  } else {
    return {tensor.mutable_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  }
}

/// Lays values out for kernels: the last dimension is contiguous, and rows do not overlap.
inline at::Tensor with_rows(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const bool walks = tensor.stride(-1) == 1 && tensor.stride(-2) >= tensor.size(-1);
  // contiguous() would return a single row as it is, with a stride that no matrix product takes.
  return walks ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

/// Parts of a batch whose gradients are summed apart, so that every thread has a head: 1 to max(batch, 1).
inline int64_t parts_of(int64_t batch, int64_t heads) {
  const int64_t threads = at::get_num_threads(), all = std::max<int64_t>(heads, 1);
  return std::clamp<int64_t>((threads + all - 1) / all, 1, std::max<int64_t>(batch, 1));
}

/// An empty [B,H,T,d] whose memory is [B,T,H,d], so that joining heads is a view. B, H, type and device are those of
/// `like`.
inline at::Tensor empty_heads(const at::Tensor& like, int64_t rows, int64_t width) {
  return at::empty({like.size(0), rows, like.size(1), width}, like.options()).transpose(1, 2);
}

}  // namespace mnemo::ops
