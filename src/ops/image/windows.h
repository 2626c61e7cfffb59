#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// Divides an image into windows, row by row; windows of one sample are adjacent.
///   x [B,h,w,D], h a multiple of wh, w of ww -> [B*n,wh*ww,D], n = (h/wh)(w/ww)
at::Tensor cut_windows(const at::Tensor& x, int64_t window_height, int64_t window_width);
/// The inverse, returning the image [B,h,w,D].
at::Tensor join_windows(const at::Tensor& windows, int64_t height, int64_t width, int64_t window_height,
                        int64_t window_width);

/// The row of a table [(2th-1)(2tw-1),H] that holds the bias between two positions of a window that is at most as large
/// as the table's th x tw:
///   index(i,j) = (y_i - y_j + th - 1)(2 tw - 1) + x_i - x_j + tw - 1
/// Returns int64 [A,A], A = wh*ww. Source: Liu et al. 2021, section 3.2.
at::Tensor window_position_index(int64_t window_height, int64_t window_width, int64_t table_height,
                                 int64_t table_width);

/// The mask that separates the regions of a rolled image: an axis of n rows rolled by -s is divided at n - window and n
/// - s; tokens of different regions get -100, which leaves a weight of 4e-44. s = 0: the axis is one region. Returns
/// [n,A,A] for an image of h x w (padding included) in windows of wh x ww. Source: the authors' code.
at::Tensor window_region_bias(int64_t height, int64_t width, int64_t window_height, int64_t window_width,
                              int64_t shift_height, int64_t shift_width, const at::TensorOptions& options);

}  // namespace mnemo::ops
