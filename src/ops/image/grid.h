#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// How a table of rows over a grid is resampled to another grid size (align_corners = false).
///   bicubic_antialias  timm's: a = -0.5, smoothed where it gets smaller
///   bicubic            Hugging Face's: a = -0.75, no smoothing
///   bilinear           PVT's
enum class GridResampling { bicubic_antialias, bicubic, bilinear };

/// rows [h*w,D], row by row -> [to_height*to_width,D]; unchanged if the size is the same.
at::Tensor resample_grid(const at::Tensor& rows, int64_t height, int64_t width, int64_t to_height, int64_t to_width,
                         GridResampling method);

}  // namespace mnemo::ops
