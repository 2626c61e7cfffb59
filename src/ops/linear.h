#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace mnemo::ops {

/// y = x W^T + b. weight [out,in], bias [out] or undefined.
struct LinearMap {
  at::Tensor weight, bias;
};

/// Several linear maps of the same rows, as one step of the graph: the gradients of x meet in one buffer.
///   y_m = x W_m^T + b_m
///   x [..,in] float or double; other types and devices go to at::linear, map by map
/// Returns y_m [..,out_m], contiguous. First derivatives only.
std::vector<at::Tensor> linear_maps(const at::Tensor& x, const std::vector<LinearMap>& maps);

inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_maps(x, {{weight, bias}})[0];
}

}  // namespace mnemo::ops
