#include "ops/image/windows.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::ops {
namespace {

/// The region of each of n rows of an axis.
at::Tensor regions(int64_t size, int64_t window, int64_t shift) {
  at::Tensor region = at::zeros({size}, at::kLong);
  if (shift == 0) return region;
  region.narrow(0, size - window, window).fill_(1);
  region.narrow(0, size - shift, shift).fill_(2);
  return region;
}

}  // namespace

at::Tensor cut_windows(const at::Tensor& x, int64_t window_height, int64_t window_width) {
  base::ensure(x.size(1) % window_height == 0 && x.size(2) % window_width == 0,
               "an image of {}x{} has no whole windows of {}x{}", x.size(1), x.size(2), window_height, window_width);
  return x.unflatten(1, {-1, window_height})
      .unflatten(3, {-1, window_width})
      .transpose(2, 3)
      .reshape({-1, window_height * window_width, x.size(3)});
}

at::Tensor join_windows(const at::Tensor& windows, int64_t height, int64_t width, int64_t window_height,
                        int64_t window_width) {
  return windows.view({-1, height / window_height, width / window_width, window_height, window_width, windows.size(2)})
      .transpose(2, 3)
      .reshape({-1, height, width, windows.size(2)});
}

at::Tensor window_position_index(int64_t window_height, int64_t window_width, int64_t table_height,
                                 int64_t table_width) {
  base::ensure(window_height <= table_height && window_width <= table_width,
               "a window of {}x{} is larger than its table's {}x{}", window_height, window_width, table_height,
               table_width);
  const at::Tensor place = at::arange(window_height * window_width);
  const at::Tensor y = place.floor_divide(window_width), x = place.remainder(window_width);
  const at::Tensor down = y.unsqueeze(1) - y.unsqueeze(0) + (table_height - 1),
                   right = x.unsqueeze(1) - x.unsqueeze(0) + (table_width - 1);
  return down * (2 * table_width - 1) + right;
}

at::Tensor window_region_bias(int64_t height, int64_t width, int64_t window_height, int64_t window_width,
                              int64_t shift_height, int64_t shift_width, const at::TensorOptions& options) {
  const at::Tensor region = regions(height, window_height, shift_height).unsqueeze(1) * 3 +
                            regions(width, window_width, shift_width).unsqueeze(0);
  const at::Tensor windows = cut_windows(region.view({1, height, width, 1}), window_height, window_width)
                                 .squeeze(2);  // [n,A]
  const at::Tensor apart = windows.unsqueeze(1) != windows.unsqueeze(2);
  return at::where(apart, -100.0, 0.0).to(options);
}

}  // namespace mnemo::ops
