#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace mnemo::ops {

/// A convolution of several maps with one kernel, stride 1, zeros around each map.
///   y_d(i,j) = b_d + sum_(c, a,e in 0..2) W[d,c,a,e] x_c(i + a - 1, j + e - 1)
/// Large maps of float32 on the CPU that need no graph go by tiles of 4 x 4 results (conv_tiles.h): a quarter of the
/// multiplications, relative error near 1e-6. Others go by LibTorch's convolution.
///   maps [B,C,h,w] of any sizes  weight [D,C,3,3]  bias [D] or undefined
/// Returns maps [B,D,h,w]; channels last is the fastest layout.
std::vector<at::Tensor> conv3x3(std::span<const at::Tensor> maps, const at::Tensor& weight, const at::Tensor& bias);
/// Likewise, of one map.
inline at::Tensor conv3x3(const at::Tensor& map, const at::Tensor& weight, const at::Tensor& bias) {
  return conv3x3(std::span(&map, 1), weight, bias)[0];
}

}  // namespace mnemo::ops
