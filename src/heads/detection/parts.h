#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/real_cells.h"
#include "heads/detection/detector_options.h"
#include "ops/detection/anchors.h"
#include "ops/detection/boxes.h"
#include "ops/detection/roi_align.h"

namespace mnemo::heads {

/// Height and width in pixels.
using PixelSize = std::pair<int64_t, int64_t>;

/// The objects of one image. Without objects the tensors have no rows.
struct ObjectTargets {
  at::Tensor boxes;       ///< [G,4] x1, y1, x2, y2
  at::Tensor labels;      ///< [G] int64
  at::Tensor masks = {};  ///< [G,h,w] 0 or 1; undefined: none
};

/// The detections of one image, by falling score.
struct Detections {
  at::Tensor boxes;       ///< [N,4], within the image
  at::Tensor scores;      ///< [N]
  at::Tensor labels;      ///< [N] int64
  at::Tensor masks = {};  ///< [N,M,M] probabilities within each box; undefined: none
};

/// Anchors of all levels.
struct AnchorOptions {
  std::vector<ops::AnchorLevel> levels = {};
  std::vector<ops::PlaceCounts> strides = {};  ///< y, x of each level; empty: image / map for each axis, rounded down
  bool round = true;
};

/// Anchors of maps [B,C,h,w] of a batch of images padded to that size: for each level [h*w*A,4].
std::vector<at::Tensor> make_anchors(const AnchorOptions& options, PixelSize image, std::span<const at::Tensor> maps);

/// The real cells of each map of a padded batch; empty: all cells are real.
using RealLevels = std::span<const core::RealCells>;
/// A map with zeros in the padding of its level.
at::Tensor keep_real(const at::Tensor& map, RealLevels real, size_t level);
/// The anchors of a level whose cells are real in image b: indices; undefined: all.
at::Tensor real_anchors(RealLevels real, size_t level, int64_t b, int64_t anchors_of_cell);
/// real_anchors() of all levels, one after another; `anchors`: of each level.
at::Tensor all_real_anchors(std::span<const at::Tensor> anchors, RealLevels real, int64_t b, int64_t anchors_of_cell);
/// The rows that `chosen` lists; all if it is undefined.
at::Tensor rows_at(const at::Tensor& rows, const at::Tensor& chosen);
/// The sizes of the maps of each image.
ops::MapSizes map_sizes(const core::RealCells& cells);

/// [B,A*c,h,w] -> [B,h*w*A,c].
at::Tensor flat_places(const at::Tensor& map, int64_t values);
/// flat_places() of all levels, one after another.
at::Tensor flat_levels(const std::vector<at::Tensor>& maps, int64_t values);

/// ln(1000/16): the largest scale of a decoded box.
inline const double kBoxClip = std::log(1000.0 / 16.0);

/// The order in which samples of an image are drawn: a permutation of `count` positive or negative candidates.
using DrawOrder = std::function<at::Tensor(int64_t image, bool positive, int64_t count)>;
/// Permutations from LibTorch's default generator.
DrawOrder random_order();

/// Sum of l1 or smooth_l1 of the differences.
at::Tensor box_loss_sum(BoxLoss loss, const at::Tensor& deltas, const at::Tensor& targets, double beta);

/// Rows of boxes with width and height of at least `size`: [N,4] -> [N] bool.
at::Tensor large_enough(const at::Tensor& boxes, double size);

}  // namespace mnemo::heads
