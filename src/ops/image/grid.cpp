#include "ops/image/grid.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::ops {

at::Tensor resample_grid(const at::Tensor& rows, int64_t height, int64_t width, int64_t to_height, int64_t to_width,
                         GridResampling method) {
  base::ensure(rows.dim() == 2 && rows.size(0) == height * width, "resample_grid: expected {} x {} rows, found {}",
               height, width, rows.size(0));
  if (height == to_height && width == to_width) return rows;
  const at::Tensor image = rows.t().reshape({1, rows.size(1), height, width});
  const std::vector<int64_t> size = {to_height, to_width};
  at::Tensor resampled;
  if (method == GridResampling::bilinear)
    resampled = at::upsample_bilinear2d(image, size, false);
  else if (method == GridResampling::bicubic)
    resampled = at::upsample_bicubic2d(image, size, false);
  else
    resampled = at::_upsample_bicubic2d_aa(image, size, false);
  return resampled.flatten(2).squeeze(0).t();
}

}  // namespace mnemo::ops
