#pragma once

#include <ATen/core/Tensor.h>

#include "layers/parts.h"

namespace mnemo::layers {

enum class NormType { layer, rms };

/// The norm of a backbone's layers over the last dimension.
///   layer: (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016)
///   rms:   x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); it has no bias
struct Norm {
  Norm() = default;
  Norm(NormType type, const Scope& scope, int64_t dim, double eps);
  at::Tensor operator()(const at::Tensor& x) const;
  /// The norm with its parameters as constants.
  at::Tensor constant(const at::Tensor& x) const;
  explicit operator bool() const { return weight.defined(); }

  NormType type = NormType::layer;
  at::Tensor weight, bias;
  double eps = 1e-5;
};

}  // namespace mnemo::layers
