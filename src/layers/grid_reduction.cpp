#include "layers/grid_reduction.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/image/image_rows.h"

namespace mnemo::layers {

GridReduction::GridReduction(const Scope& scope, int64_t dim, int64_t stride, int64_t size, double norm_eps, double std)
    : ratio(size > 0 ? 1 : stride), pool(size) {
  if (ratio == 1 && pool == 0) return;
  weight = (scope / "sr").add("weight", {dim, dim, ratio, ratio}, normal(std));
  bias = (scope / "sr").add("bias", {dim}, constant(0.0), ParameterKind::bias);
  norm = LayerNorm(scope / "sr_norm", dim, norm_eps);
}

at::Tensor GridReduction::operator()(const at::Tensor& rows, int64_t height, int64_t width) const {
  if (!reduces()) return rows;
  if (pool > 0) {
    const at::Tensor pooled = at::adaptive_avg_pool2d(ops::rows_to_image(rows, height, width), {pool, pool});
    return at::gelu(norm(ops::strided_conv(ops::image_to_rows(pooled), pool, pool, weight, bias)));
  }
  base::require(
      height >= ratio && width >= ratio,
      "[spatial reduction] an image of {}x{} rows cannot be reduced by sr_ratio = {}: expected at least {}x{}", height,
      width, ratio, ratio, ratio);
  return norm(ops::strided_conv(rows, height, width, weight, bias));
}

}  // namespace mnemo::layers
