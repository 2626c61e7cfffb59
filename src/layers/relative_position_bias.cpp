#include "layers/relative_position_bias.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/image/windows.h"

namespace mnemo::layers {

RelativePositionBias::RelativePositionBias(const Scope& scope, int64_t height, int64_t width, int64_t num_heads,
                                           double std)
    : table(scope.add("relative_position_bias_table", {(2 * height - 1) * (2 * width - 1), num_heads}, normal(std),
                      ParameterKind::bias)),
      window_height(height),
      window_width(width) {}

at::Tensor RelativePositionBias::operator()(int64_t height, int64_t width) const {
  base::require(height <= window_height && width <= window_width,
                "[relative position bias] expected a window of at most {}x{}, found {}x{}", window_height, window_width,
                height, width);
  const at::Tensor index = ops::window_position_index(height, width, window_height, window_width).to(table.device());
  return table.t().index_select(1, index.flatten()).unflatten(1, {height * width, height * width});
}

}  // namespace mnemo::layers
