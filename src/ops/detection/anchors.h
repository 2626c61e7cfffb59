#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace mnemo::ops {

/// Anchors at every place of one level.
struct AnchorLevel {
  std::vector<double> sizes;   ///< square root of the area, in pixels
  std::vector<double> ratios;  ///< height / width
};

/// Rows and columns of a level, or its stride in pixels (y, x).
using PlaceCounts = std::pair<int64_t, int64_t>;

/// Stride of a level that torchvision takes: floor(image / grid) for each axis.
PlaceCounts image_stride(PlaceCounts image, PlaceCounts grid);

/// Anchors of one level. Place (i,j) has its centre at (j stride_x, i stride_y); for ratio r and size s the half
/// extents are s/(2 sqrt(r)) and s sqrt(r)/2, with `round` each rounded to an integer, halves to even.
/// Returns [h*w*A,4]: rows, columns, ratios, sizes.
at::Tensor level_anchors(const AnchorLevel& level, PlaceCounts grid, PlaceCounts stride, bool round,
                         const at::TensorOptions& options);

}  // namespace mnemo::ops
