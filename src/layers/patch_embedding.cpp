#include "layers/patch_embedding.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/image/image_rows.h"

namespace mnemo::layers {

PatchEmbedding::PatchEmbedding(const Scope& scope, int64_t channels, int64_t dim, int64_t size, int64_t step,
                               int64_t pad, double std)
    : weight(scope.add("weight", {dim, channels, size, size}, normal(std))),
      bias(scope.add("bias", {dim}, constant(0.0), ParameterKind::bias)),
      stride(step),
      padding(pad) {}

at::Tensor PatchEmbedding::by_convolution(const at::Tensor& pixels) const {
  return at::conv2d(pixels, weight, bias, {stride, stride}, {padding, padding}).flatten(2).transpose(1, 2);
}

at::Tensor PatchEmbedding::operator()(const at::Tensor& pixels) const {
  base::require(pixels.dim() == 4 && pixels.size(1) == weight.size(1),
                "[patch_embedding] expected pixels [B,{},H,W], found {}", weight.size(1), c10::str(pixels.sizes()));
  if (stride != weight.size(2) || padding != 0) return by_convolution(pixels);
  return ops::patch_conv(pixels, weight, bias);
}

}  // namespace mnemo::layers
