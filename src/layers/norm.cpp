#include "layers/norm.h"

#include <torch/types.h>

#include "ops/rms_norm.h"

namespace mnemo::layers {

Norm::Norm(NormType of, const Scope& scope, int64_t dim, double epsilon)
    : type(of), weight(scope.add("weight", {dim}, layers::constant(1.0), ParameterKind::norm)), eps(epsilon) {
  if (type == NormType::layer) bias = scope.add("bias", {dim}, layers::constant(0.0), ParameterKind::norm);
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return type == NormType::rms ? ops::rms_norm(x, weight, eps) : at::layer_norm(x, {weight.size(0)}, weight, bias, eps);
}

at::Tensor Norm::constant(const at::Tensor& x) const {
  return type == NormType::rms ? ops::rms_norm(x, weight.detach(), eps)
                               : at::layer_norm(x, {weight.size(0)}, weight.detach(), bias.detach(), eps);
}

}  // namespace mnemo::layers
