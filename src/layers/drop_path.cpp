#include "layers/drop_path.h"

#include <torch/types.h>

#include <vector>

#include "ops/batch_rows.h"

namespace mnemo::layers {

at::Tensor drop_path(const at::Tensor& x, double p, bool training) {
  if (!training || p == 0.0) return x;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  const at::Tensor kept = ops::row_mask(shape, 1.0 - p, x);
  return x * (kept / (1.0 - p));
}

double drop_path_of(double last, int64_t layer, int64_t num_layers) {
  return num_layers < 2 ? 0.0 : last * static_cast<double>(layer) / static_cast<double>(num_layers - 1);
}

}  // namespace mnemo::layers
