#include "heads/detection/parts.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "ops/detection/detection_losses.h"

namespace mnemo::heads {

std::vector<at::Tensor> make_anchors(const AnchorOptions& options, PixelSize image, std::span<const at::Tensor> maps) {
  base::ensure(options.levels.size() == maps.size(), "anchors of {} levels, found {} maps", options.levels.size(),
               maps.size());
  std::vector<at::Tensor> out;
  for (size_t l = 0; l < maps.size(); ++l) {
    const ops::PlaceCounts grid{maps[l].size(2), maps[l].size(3)};
    const ops::PlaceCounts stride = options.strides.empty() ? ops::image_stride(image, grid) : options.strides[l];
    out.push_back(
        ops::level_anchors(options.levels[l], grid, stride, options.round, maps[l].options().requires_grad(false)));
  }
  return out;
}

at::Tensor keep_real(const at::Tensor& map, RealLevels real, size_t level) {
  return real.empty() ? map : real[level].keep_map(map);
}

at::Tensor real_anchors(RealLevels real, size_t level, int64_t b, int64_t anchors_of_cell) {
  if (real.empty() || real[level].all()) return {};
  const core::Grid own = real[level].of_image(b);
  const auto options = at::TensorOptions().dtype(at::kLong);
  const at::Tensor cells = at::arange(own.height, options).unsqueeze(1) * real[level].grid.width +
                           at::arange(own.width, options);
  return (cells.view({-1, 1}) * anchors_of_cell + at::arange(anchors_of_cell, options)).flatten();
}

at::Tensor all_real_anchors(std::span<const at::Tensor> anchors, RealLevels real, int64_t b, int64_t anchors_of_cell) {
  if (std::all_of(real.begin(), real.end(), [](const core::RealCells& level) { return level.all(); })) return {};
  std::vector<at::Tensor> levels;
  int64_t first = 0;
  for (size_t l = 0; l < anchors.size(); ++l) {
    const int64_t end = first + anchors[l].size(0);
    const at::Tensor own = real_anchors(real, l, b, anchors_of_cell);
    levels.push_back(own.defined() ? own + first : at::arange(first, end, at::TensorOptions().dtype(at::kLong)));
    first = end;
  }
  return at::cat(levels, 0);
}

at::Tensor rows_at(const at::Tensor& rows, const at::Tensor& chosen) {
  return chosen.defined() ? rows.index_select(0, chosen.to(rows.device())) : rows;
}

ops::MapSizes map_sizes(const core::RealCells& cells) {
  ops::MapSizes sizes;
  for (const core::Grid& each : cells.images) sizes.emplace_back(each.height, each.width);
  return sizes;
}

at::Tensor flat_places(const at::Tensor& map, int64_t values) {
  return map.permute({0, 2, 3, 1}).reshape({map.size(0), -1, values});
}

at::Tensor flat_levels(const std::vector<at::Tensor>& maps, int64_t values) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& map : maps) flat.push_back(flat_places(map, values));
  return at::cat(flat, 1);
}

DrawOrder random_order() {
  return [](int64_t /*image*/, bool /*positive*/, int64_t count) { return at::randperm(count, at::kLong); };
}

at::Tensor box_loss_sum(BoxLoss loss, const at::Tensor& deltas, const at::Tensor& targets, double beta) {
  base::ensure(loss != BoxLoss::giou, "GIoU is a loss of boxes, not of differences");
  return ops::smooth_l1(deltas, targets, loss == BoxLoss::l1 ? 0.0 : beta).sum();
}

at::Tensor large_enough(const at::Tensor& boxes, double size) {
  const at::Tensor sides = boxes.slice(1, 2) - boxes.slice(1, 0, 2);
  return (sides >= size).all(1);
}

}  // namespace mnemo::heads
