#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// The rows [B,h*w,D] of an image, row by row, as [B,D,h,w]: a view (channels last).
at::Tensor rows_to_image(const at::Tensor& rows, int64_t height, int64_t width);
/// [B,D,h,w] -> [B,h*w,D], a view if the image is channels last.
at::Tensor image_to_rows(const at::Tensor& image);

/// A convolution whose kernel is its stride, of an image's rows, as one linear map of patches. First
/// derivatives only.
///   y(i,j) = b + sum_(a,c) W[:,:,a,c] x(r i + a, s j + c)
/// Rows and columns that do not fill a kernel are dropped.
///   rows [B,h*w,D]  weight [O,D,r,s]  bias [O] or undefined
/// Returns [B,(h/r)*(w/s),O].
at::Tensor strided_conv(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                        const at::Tensor& bias);
/// strided_conv() of an image x [B,D,H,W].
at::Tensor patch_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace mnemo::ops
