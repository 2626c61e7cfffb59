#pragma once

#include <ATen/core/Tensor.h>

#include "layers/parameters.h"

namespace mnemo::layers {

/// Patches of an image as rows: a convolution, row by row of its result.
///   y = W * pixels + b,  pixels [B,C,H,W] -> [B, h*w, D],  h = (H + 2 padding - size) / stride + 1
/// If patches do not overlap (stride = size, no padding), it is one matrix product of the patches.
struct PatchEmbedding {
  PatchEmbedding() = default;
  /// W ~ N(0, std), b = 0. Names weight [D,C,size,size] and bias [D] under the scope.
  PatchEmbedding(const Scope& scope, int64_t channels, int64_t dim, int64_t size, int64_t stride, int64_t padding,
                 double std);
  at::Tensor operator()(const at::Tensor& pixels) const;
  /// The embedding by LibTorch's convolution: the naive reference, also used if patches overlap.
  at::Tensor by_convolution(const at::Tensor& pixels) const;
  /// Number of patch rows or columns for an image with that many rows or columns of pixels.
  int64_t length(int64_t pixels) const { return (pixels + 2 * padding - weight.size(2)) / stride + 1; }

  at::Tensor weight, bias;
  int64_t stride = 0, padding = 0;
};

}  // namespace mnemo::layers
