#include "memory/resample_cells.h"

#include <torch/types.h>

namespace mnemo::memory {

at::Tensor resample_cells(const at::Tensor& rows, const core::RealCells& cells, core::Grid to) {
  const core::Grid& grid = cells.grid;
  if (cells.all() && grid.height == to.height && grid.width == to.width) return rows;
  const auto options = at::TensorOptions().dtype(at::kLong);
  const at::Tensor i = at::arange(to.height, options), j = at::arange(to.width, options);
  std::vector<at::Tensor> places;
  const size_t images = cells.all() ? 1 : cells.images.size();
  for (size_t b = 0; b < images; ++b) {
    const core::Grid own = cells.of_image(static_cast<int64_t>(b));
    const at::Tensor row = at::div(i * own.height, to.height, "floor"),
                     column = at::div(j * own.width, to.width, "floor");
    places.push_back((row.unsqueeze(1) * grid.width + column).flatten());
  }
  const at::Tensor index = at::stack(places, 0).to(rows.device());
  if (images == 1) return rows.index_select(1, index[0]);
  return rows.gather(1, index.unsqueeze(-1).expand({-1, -1, rows.size(2)}));
}

}  // namespace mnemo::memory
