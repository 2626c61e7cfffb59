#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <type_traits>

#include "base/error.h"
#include "ops/cuda/kernel.h"

namespace mnemo::ops::cuda {

/// The rows of a tensor [B,H,T,d] with d contiguous; null for an undefined one. T is const for read-only access.
template <class T>
Rows<T> rows_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if constexpr (std::is_const_v<T>) {
    return {tensor.const_data_ptr<std::remove_const_t<T>>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  } else {
    return {tensor.mutable_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  }
}

/// Calls f(S()), where S is the tensor's element type.
template <class F>
void with_type_of(const at::Tensor& tensor, F f) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return f(float());
    case at::kDouble:
      return f(double());
    case at::kBFloat16:
      return f(c10::BFloat16());
    default:
      base::input_error("a kernel for CUDA: expected float32, float64 or bfloat16, found {}",
                        c10::toString(tensor.scalar_type()));
  }
}

/// The type of sums: float32 for bfloat16.
inline at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace mnemo::ops::cuda
