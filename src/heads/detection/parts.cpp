#include "heads/detection/parts.h"

#include <torch/types.h>

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

at::Tensor flat_places(const at::Tensor& map, int64_t values) {
  const int64_t batch = map.size(0), height = map.size(2), width = map.size(3);
  return map.view({batch, -1, values, height, width}).permute({0, 3, 4, 1, 2}).reshape({batch, -1, values});
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
