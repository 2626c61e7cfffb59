#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/parts.h"

namespace mnemo::layers {

/// Reduces the rows of an image for keys and values (Wang et al. 2021, eq. 3; 2022, section 3.2).
///   ratio r > 1:  LN(Conv(x)), kernel and stride r; rows that do not fill a kernel are dropped
///   r = 1:        x
///   pool p > 0:   GELU(LN(Conv1x1(AdaptiveAvgPool_p(x)))), p x p rows whatever the image's size
/// Names "sr" (weight [D,D,r,r], bias [D]) and "sr_norm" under the scope.
struct GridReduction {
  GridReduction() = default;
  GridReduction(const Scope& scope, int64_t dim, int64_t ratio, int64_t pool, double norm_eps, double std);
  /// [B,h*w,D] -> [B,K,D]. Throws InputError if the image is smaller than one kernel.
  at::Tensor operator()(const at::Tensor& rows, int64_t height, int64_t width) const;
  bool reduces() const { return weight.defined(); }

  at::Tensor weight, bias;
  LayerNorm norm;
  int64_t ratio = 1, pool = 0;
};

}  // namespace mnemo::layers
