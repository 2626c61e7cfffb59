#include "layers/patch_embedding.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/linear.h"

namespace mnemo::layers {

PatchEmbedding::PatchEmbedding(const Scope& scope, int64_t channels, int64_t dim, int64_t size, int64_t step, int64_t pad, double std)
    : weight(scope.add("weight", {dim, channels, size, size}, normal(std))),
      bias(scope.add("bias", {dim}, constant(0.0), ParameterKind::bias)),
      stride(step),
      padding(pad) {}

at::Tensor PatchEmbedding::by_convolution(const at::Tensor& pixels) const {
  return at::conv2d(pixels, weight, bias, {stride, stride}, {padding, padding}).flatten(2).transpose(1, 2);
}

at::Tensor PatchEmbedding::operator()(const at::Tensor& pixels) const {
  base::require(pixels.dim() == 4 && pixels.size(1) == weight.size(1), "[patch_embedding] expected pixels [B,{},H,W], found {}", weight.size(1),
                c10::str(pixels.sizes()));
  const int64_t size = weight.size(2), batch = pixels.size(0), height = length(pixels.size(2)), width = length(pixels.size(3));
  if (stride != size || padding != 0) return by_convolution(pixels);
  const at::Tensor patches = pixels.narrow(2, 0, height * size)
                                 .narrow(3, 0, width * size)
                                 .reshape({batch, weight.size(1), height, size, width, size})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({batch, height * width, weight.size(1) * size * size});
  return ops::linear(patches, weight.flatten(1), bias);
}

}  // namespace mnemo::layers
