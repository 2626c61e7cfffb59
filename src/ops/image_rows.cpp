#include "ops/image_rows.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/linear.h"

namespace mnemo::ops {

at::Tensor rows_to_image(const at::Tensor& rows, int64_t height, int64_t width) {
  base::ensure(rows.size(1) == height * width, "{} rows are no image of {}x{}", rows.size(1), height, width);
  return rows.transpose(1, 2).unflatten(2, {height, width});
}

at::Tensor image_to_rows(const at::Tensor& image) { return image.permute({0, 2, 3, 1}).flatten(1, 2); }

at::Tensor strided_conv_naive(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight, const at::Tensor& bias) {
  return image_to_rows(at::conv2d(rows_to_image(rows, height, width), weight, bias, {weight.size(2), weight.size(3)}));
}

at::Tensor strided_conv(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight, const at::Tensor& bias) {
  base::ensure(rows.size(1) == height * width, "{} rows are no image of {}x{}", rows.size(1), height, width);
  const int64_t high = weight.size(2), wide = weight.size(3), down = height / high, right = width / wide;
  base::ensure(down > 0 && right > 0, "a {}x{} kernel is larger than its image of {}x{}", high, wide, height, width);
  const at::Tensor image = rows.unflatten(1, {height, width}).narrow(1, 0, down * high).narrow(2, 0, right * wide);
  const at::Tensor patches = image.unflatten(1, {down, high}).unflatten(3, {right, wide}).transpose(2, 3);  // [B,h/r,w/s,r,s,D]
  return linear(patches.reshape({rows.size(0), down * right, high * wide * rows.size(2)}), weight.permute({0, 2, 3, 1}).flatten(1), bias);
}

}  // namespace mnemo::ops
