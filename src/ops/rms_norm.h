#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// y = x / sqrt(mean(x^2) + eps) * weight over the last dimension; in float32 without a graph, rows are read once.
///   x [..,D]  weight [D]
/// Source: Zhang and Sennrich 2019, eq. 4.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace mnemo::ops
