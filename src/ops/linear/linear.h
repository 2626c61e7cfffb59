#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace mnemo::ops {

class PackedLinear;

/// y = x W^T + b. weight [out,in], bias [out] or undefined.
struct LinearMap {
  at::Tensor weight, bias;
};

/// How float32 linear layers multiply.
///   float32  unchanged
///   bf16     both factors of a product (x W^T, the gradients of x and of W) are rounded to bfloat16, to nearest, ties
///            to even; products and sums are float32, and so are biases and all results. Devices other than the CPU
///            also round the results to bfloat16.
enum class ProductPrecision { float32, bf16 };

/// During its lifetime, linear layers run by this thread multiply this way, and so do their backward passes, whenever
/// and wherever those run. The innermost guard applies.
class ProductPrecisionGuard {
 public:
  explicit ProductPrecisionGuard(ProductPrecision precision);
  ~ProductPrecisionGuard();
  ProductPrecisionGuard(const ProductPrecisionGuard&) = delete;
  ProductPrecisionGuard& operator=(const ProductPrecisionGuard&) = delete;

 private:
  ProductPrecision before_;
};

/// The precision set by the innermost guard of this thread; float32 without one.
ProductPrecision product_precision_now();

/// Several linear layers of the same rows as one node of the graph; the gradients of x are summed in one buffer.
///   y_m = x W_m^T + b_m
///   x [..,in] float or double; other types and devices use at::linear for each layer
/// Float32 layers multiply according to the thread's ProductPrecisionGuard. Returns y_m [..,out_m], contiguous. First
/// derivatives only.
std::vector<at::Tensor> linear_maps(const at::Tensor& x, const std::vector<LinearMap>& maps);

/// y = x W^T + b with a packed W, without a graph. x [..,in] float32 on the CPU, bias [out] or undefined.
at::Tensor linear(const at::Tensor& x, const PackedLinear& weight, const at::Tensor& bias);

inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_maps(x, {{weight, bias}})[0];
}

}  // namespace mnemo::ops
