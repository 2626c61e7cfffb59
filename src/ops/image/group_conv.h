#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// A 3x3 convolution of an image's rows in groups, stride 1, zeros around the image, vectorized over channels for
/// groups of few channels, where LibTorch's convolution is slow (first derivatives only). float or double on the CPU;
/// elsewhere by definition.
///   y_c(i,j) = b_c + sum_(a,e in -1..1) sum_(k < f) W[c,k,a+1,e+1] x_(g f + k)(i + a, j + e),   g = floor(c / f)
/// D channels in groups of f.
///   rows [B,h*w,D]  weight [D,f,3,3]  bias [D]
/// Returns [B,h*w,D].
at::Tensor group_conv(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                      const at::Tensor& bias);

}  // namespace mnemo::ops
