#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace mnemo::ops {

struct RoiAlignOptions {
  int64_t height = 7, width = 7;  ///< cells of the result
  int64_t sampling_ratio = 2;     ///< samples of a cell along each axis; 0: ceil(cell)
  bool aligned = false;           ///< boxes moved by half a pixel, and not enlarged to one pixel at least
};

/// Rows and columns of the map of each image.
using MapSizes = std::vector<std::pair<int64_t, int64_t>>;

/// Samples of one axis beyond which a box is refused.
inline constexpr int64_t kMaxRoiSamples = int64_t{1} << 20;

/// The mean of bilinear samples in each cell of each box (He et al. 2017, section 3).
///   features [B,C,H,W], rois [R,5] rows (image, x1, y1, x2, y2) -> [R,C,height,width]
/// Boxes are multiplied by `scale`. A sample outside [-1, H] x [-1, W] is 0; inside, coordinates below 0 count as 0 and
/// those from H-1 on as the last row. A box that is not finite gives zeros. The features have a gradient, boxes none.
/// `real`: H and W of each image in a padded batch; empty: those of the features.
/// Throws ShapeError for an image that is not in the batch, InputError beyond kMaxRoiSamples.
/// Naive reference: roi_align_naive().
at::Tensor roi_align(const at::Tensor& features, const at::Tensor& rois, double scale, const RoiAlignOptions& options,
                     const MapSizes& real = {});

/// Which level of a pyramid a box is read from.
struct RoiLevels {
  double canonical_scale = 224.0;  ///< square root of the area that belongs to
  int64_t canonical_level = 4;     ///< this level, of scale 2^-level
  std::vector<double> scales;      ///< of the maps, the finest first: powers of 2
};

/// floor(canonical_level + log2(sqrt(area) / canonical_scale) + 1e-6), limited to the levels there are, counted from
/// the first map: boxes [N,4] -> [N] int64. Source: Lin et al. 2017 (FPN), eq. 1.
at::Tensor roi_levels(const at::Tensor& boxes, const RoiLevels& levels);

/// Each box of each image from its own level: maps [B,C,H_l,W_l], boxes of B images [N_b,4] -> [sum N_b,C,h,w].
/// `real`: of each level, or none.
at::Tensor roi_align_levels(std::span<const at::Tensor> maps, std::span<const at::Tensor> boxes,
                            const RoiLevels& levels, const RoiAlignOptions& options,
                            std::span<const MapSizes> real = {});

/// The boxes of B images as rows (image, x1, y1, x2, y2): [sum N_b,5].
at::Tensor rois_of(std::span<const at::Tensor> boxes);

}  // namespace mnemo::ops
