#include "ops/image/image_rows.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/linear/linear.h"
#include "ops/linear/packed_maps.h"

namespace mnemo::ops {

at::Tensor rows_to_image(const at::Tensor& rows, int64_t height, int64_t width) {
  base::ensure(rows.size(1) == height * width, "{} rows are no image of {}x{}", rows.size(1), height, width);
  return rows.transpose(1, 2).unflatten(2, {height, width});
}

at::Tensor image_to_rows(const at::Tensor& image) { return image.permute({0, 2, 3, 1}).flatten(1, 2); }

namespace {

/// The packed form of a kernel, if no graph is needed.
const PackedLinear* packed_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return at::GradMode::is_enabled() || x.scalar_type() != at::kFloat ||
                 product_precision_now() != ProductPrecision::float32
             ? nullptr
             : packed_now(weight);
}

}  // namespace

at::Tensor strided_conv(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                        const at::Tensor& bias) {
  base::ensure(rows.size(1) == height * width, "{} rows are no image of {}x{}", rows.size(1), height, width);
  const int64_t high = weight.size(2), wide = weight.size(3), down = height / high, right = width / wide;
  base::ensure(down > 0 && right > 0, "a {}x{} kernel is larger than its image of {}x{}", high, wide, height, width);
  const at::Tensor image = rows.unflatten(1, {height, width}).narrow(1, 0, down * high).narrow(2, 0, right * wide);
  const at::Tensor
      patches = image.unflatten(1, {down, high}).unflatten(3, {right, wide}).transpose(2, 3);  // [B,h/r,w/s,r,s,D]
  const at::Tensor flat = patches.reshape({rows.size(0), down * right, high * wide * rows.size(2)});
  const PackedLinear* packed = packed_kernel(flat, weight);
  return packed ? linear(flat, *packed, bias) : linear(flat, weight.permute({0, 2, 3, 1}).flatten(1), bias);
}

at::Tensor patch_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t high = weight.size(2), wide = weight.size(3), down = x.size(2) / high, right = x.size(3) / wide;
  const at::Tensor image = x.narrow(2, 0, down * high).narrow(3, 0, right * wide);
  const at::Tensor patches = image.unflatten(2, {down, high}).unflatten(4, {right, wide});  // [B,D,H/r,r,W/s,s]
  const std::vector<int64_t> shape = {x.size(0), down * right, weight.size(1) * high * wide};
  if (const PackedLinear* packed = packed_kernel(x, weight))
    return linear(patches.permute({0, 2, 4, 3, 5, 1}).reshape(shape), *packed, bias);
  return linear(patches.permute({0, 2, 4, 1, 3, 5}).reshape(shape), weight.flatten(1), bias);  // the weight is not
                                                                                               // copied
}

}  // namespace mnemo::ops
