#include "heads/detection/convolution.h"

#include <torch/types.h>

#include <cmath>

#include "ops/image/conv3x3.h"

namespace mnemo::heads {

Convolution::Convolution(const layers::Scope& scope, int64_t in, int64_t out, int64_t size, int64_t step,
                         const layers::Initialiser& weights, double bias_value)
    : weight(scope.add("weight", {out, in, size, size}, weights)),
      bias(scope.add("bias", {out}, layers::constant(bias_value), layers::ParameterKind::bias)),
      stride(step) {}

at::Tensor Convolution::operator()(const at::Tensor& x) const {
  return tiles() ? ops::conv3x3(x, weight, bias) : at::conv2d(x, weight, bias, stride, weight.size(2) / 2);
}

std::vector<at::Tensor> Convolution::operator()(std::span<const at::Tensor> maps) const {
  if (tiles()) return ops::conv3x3(maps, weight, bias);
  std::vector<at::Tensor> out;
  for (const at::Tensor& map : maps) out.push_back((*this)(map));
  return out;
}

Projection::Projection(const layers::Scope& scope, int64_t in, int64_t out, const layers::Initialiser& weights)
    : weight(scope.add("weight", {out, in}, weights)),
      bias(scope.add("bias", {out}, layers::constant(0.0), layers::ParameterKind::bias)) {}

at::Tensor Projection::operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }

layers::Initialiser uniform(double bound) {
  return [bound](at::Tensor& tensor, at::Generator& generator) { tensor.uniform_(-bound, bound, generator); };
}

layers::Initialiser kaiming_uniform(int64_t fan_in) { return uniform(std::sqrt(3.0 / static_cast<double>(fan_in))); }

layers::Initialiser kaiming_normal(int64_t fan_out) {
  return layers::normal(std::sqrt(2.0 / static_cast<double>(fan_out)));
}

}  // namespace mnemo::heads
