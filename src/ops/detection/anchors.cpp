#include "ops/detection/anchors.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

namespace mnemo::ops {

PlaceCounts image_stride(PlaceCounts image, PlaceCounts grid) {
  return {image.first / grid.first, image.second / grid.second};
}

at::Tensor level_anchors(const AnchorLevel& level, PlaceCounts grid, PlaceCounts stride, bool round,
                         const at::TensorOptions& options) {
  std::vector<double> around;
  for (const double ratio : level.ratios) {
    const double tall = std::sqrt(ratio), wide = 1.0 / tall;
    for (const double size : level.sizes) {
      for (const double extent : {-wide * size, -tall * size, wide * size, tall * size})
        around.push_back(round ? std::nearbyint(extent / 2) : extent / 2);
    }
  }
  const at::Tensor shapes = at::tensor(around, at::kDouble).view({1, 1, -1, 4});
  const at::Tensor y = at::arange(grid.first, at::kDouble) * stride.first,
                   x = at::arange(grid.second, at::kDouble) * stride.second;
  const at::Tensor columns = x.unsqueeze(0).expand({grid.first, -1}), rows = y.unsqueeze(1).expand({-1, grid.second});
  const at::Tensor places = at::stack({columns, rows, columns, rows}, -1).unsqueeze(2);
  return (places + shapes).reshape({-1, 4}).to(options);
}

}  // namespace mnemo::ops
