#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "layers/parameters.h"

namespace mnemo::heads {

/// y = W * x + b: x [B,C,H,W] -> [B,D,H',W']. Names weight [D,C,size,size] and bias [D] under the scope.
struct Convolution {
  Convolution() = default;
  /// Padding of size / 2, which keeps the size of x at stride 1.
  Convolution(const layers::Scope& scope, int64_t in, int64_t out, int64_t size, int64_t stride,
              const layers::Initialiser& weights, double bias_value = 0.0);
  at::Tensor operator()(const at::Tensor& x) const;
  /// Convolves several maps with the one kernel, large ones together.
  std::vector<at::Tensor> operator()(std::span<const at::Tensor> maps) const;

  at::Tensor weight, bias;
  int64_t stride = 1;

 private:
  bool tiles() const { return stride == 1 && weight.size(2) == 3; }
};

/// y = x W^T + b with parameters weight [D,C] and bias [D].
struct Projection {
  Projection() = default;
  Projection(const layers::Scope& scope, int64_t in, int64_t out, const layers::Initialiser& weights);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
};

/// Uniform in +-bound.
layers::Initialiser uniform(double bound);
/// Uniform with the bound sqrt(3 / fan in): He et al. 2015 without a gain, as torchvision starts its FPN.
layers::Initialiser kaiming_uniform(int64_t fan_in);
/// N(0, sqrt(2 / fan out)), as torchvision starts its mask head.
layers::Initialiser kaiming_normal(int64_t fan_out);

}  // namespace mnemo::heads
