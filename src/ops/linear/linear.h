#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace mnemo::ops {

class PackedLinear;

/// y = x W^T + b. weight [out,in], bias [out] or undefined.
struct LinearMap {
  at::Tensor weight, bias;
};

/// How float32 linear maps multiply.
///   float32  as they are
///   bf16     both factors of a product (x W^T, the gradients of x and of W) are rounded to bfloat16, to the nearest,
///   ties to even; products
///            and sums are float32, so are biases and all results. Another device than the CPU rounds the results to
///            bfloat16 too.
enum class ProductPrecision { float32, bf16 };

/// The linear maps that this thread runs while it lives multiply so, and so do the backward passes of these, whenever
/// and wherever they run. The innermost guard counts.
class ProductPrecisionGuard {
 public:
  explicit ProductPrecisionGuard(ProductPrecision precision);
  ~ProductPrecisionGuard();
  ProductPrecisionGuard(const ProductPrecisionGuard&) = delete;
  ProductPrecisionGuard& operator=(const ProductPrecisionGuard&) = delete;

 private:
  ProductPrecision before_;
};

/// What the innermost guard of this thread says; float32 without one.
ProductPrecision product_precision_now();

/// Several linear maps of the same rows, as one step of the graph: the gradients of x meet in one buffer.
///   y_m = x W_m^T + b_m
///   x [..,in] float or double; other types and devices go to at::linear, map by map
/// Float32 maps multiply as the thread's ProductPrecisionGuard says. Returns y_m [..,out_m], contiguous. First
/// derivatives only.
std::vector<at::Tensor> linear_maps(const at::Tensor& x, const std::vector<LinearMap>& maps);

/// y = x W^T + b with a packed W, without a graph. x [..,in] float32 on the CPU, bias [out] or undefined.
at::Tensor linear(const at::Tensor& x, const PackedLinear& weight, const at::Tensor& bias);

inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_maps(x, {{weight, bias}})[0];
}

}  // namespace mnemo::ops
