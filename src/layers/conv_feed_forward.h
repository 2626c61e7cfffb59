#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/parts.h"

namespace mnemo::layers {

/// Feed-forward layer with a depthwise convolution over the image (Wang et al. 2022, section 3.4).
///   W_1 gelu(DWConv3x3(f(W_0 x + b_0))) + b_1,  f = relu in PVTv2's linear variant, otherwise the identity; zero
///   padding
/// Names "0", "dwconv" (weight [F,1,3,3], bias [F]) and "1" under the scope.
struct ConvFeedForward {
  ConvFeedForward() = default;
  ConvFeedForward(const Scope& scope, int64_t dim, int64_t hidden, bool relu, double std);
  /// [B,h*w,D] -> [B,h*w,D]. valid [B,h*w] bool: false = padding, read as zeros by the convolution.
  at::Tensor operator()(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& valid = {}) const;

  Linear in, out;
  at::Tensor weight, bias;
  bool relu = false;
};

}  // namespace mnemo::layers
