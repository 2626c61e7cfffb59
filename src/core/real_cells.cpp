#include "core/real_cells.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::core {
namespace {

int64_t rounded_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

bool fills(const Grid& cells, const Grid& grid) { return cells.height == grid.height && cells.width == grid.width; }

/// Leaves `images` empty if every image fills the grid.
RealCells cells_on(Grid grid, std::vector<Grid> images) {
  if (std::all_of(images.begin(), images.end(), [&](const Grid& each) { return fills(each, grid); })) return {grid, {}};
  return {grid, std::move(images)};
}

}  // namespace

RealCells RealCells::of(const char* who, std::span<const Grid> sizes, int64_t height, int64_t width, Grid grid) {
  if (sizes.empty()) return {grid, {}};
  base::require(grid.height > 0 && grid.width > 0 && height % grid.height == 0 && width % grid.width == 0,
                "[{}] images with padding: expected a height and width that every stage divides evenly, found {} x {} "
                "with a grid of {} x {}",
                who, height, width, grid.height, grid.width);
  std::vector<Grid> images;
  for (const Grid& size : sizes) {
    base::require(size.height >= 1 && size.height <= height && size.width >= 1 && size.width <= width,
                  "[{}] expected images of 1 x 1 to {} x {} pixels, found {} x {}", who, height, width, size.height,
                  size.width);
    images.push_back({rounded_up(size.height, height / grid.height), rounded_up(size.width, width / grid.width)});
  }
  return cells_on(grid, std::move(images));
}

RealCells RealCells::from_mask(const at::Tensor& mask, Grid grid) {
  if (!mask.defined()) return {grid, {}};
  const at::Tensor cells = mask.to(at::kCPU).view({-1, grid.height, grid.width});
  const at::Tensor heights = cells.select(2, 0).sum(1), widths = cells.select(1, 0).sum(1);
  std::vector<Grid> images;
  for (int64_t b = 0; b < cells.size(0); ++b) images.push_back({heights[b].item<int64_t>(), widths[b].item<int64_t>()});
  return cells_on(grid, std::move(images));
}

RealCells RealCells::reduced(int64_t ratio, Grid to) const {
  std::vector<Grid> fewer;
  for (const Grid& each : images)
    fewer.push_back(
        {std::min(rounded_up(each.height, ratio), to.height), std::min(rounded_up(each.width, ratio), to.width)});
  return cells_on(to, std::move(fewer));
}

at::Tensor RealCells::mask(at::Device device, int64_t front) const {
  if (all()) return {};
  const auto batch = static_cast<int64_t>(images.size());
  at::Tensor mask = at::zeros({batch, front + grid.size()}, at::TensorOptions().dtype(at::kBool));
  mask.narrow(1, 0, front).fill_(true);
  const at::Tensor cells = mask.narrow(1, front, grid.size()).unflatten(1, {grid.height, grid.width});
  for (int64_t b = 0; b < batch; ++b)
    cells[b].narrow(0, 0, of_image(b).height).narrow(1, 0, of_image(b).width).fill_(true);
  return mask.to(device);
}

at::Tensor RealCells::keep(const at::Tensor& rows) const {
  if (all()) return rows;
  return rows.masked_fill(mask(rows.device(), rows.size(1) - grid.size()).logical_not().unsqueeze(-1), 0.0);
}

at::Tensor RealCells::keep_map(const at::Tensor& map) const {
  if (all()) return map;
  const at::Tensor padding = mask(map.device()).logical_not().view({-1, 1, grid.height, grid.width});
  return map.masked_fill(padding, 0.0);
}

}  // namespace mnemo::core
