#include "ops/linear/linear.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "ops/linear/gemm.h"
#include "ops/linear/packed_maps.h"
#include "ops/linear/products.h"
#include "ops/row_kernels.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kWorthAThread = 1 << 15;

thread_local ProductPrecision product_precision = ProductPrecision::float32;

/// Whether linear layers of x round their factors now. float64 is for tests and is never rounded.
bool rounds(const at::Tensor& x) {
  return product_precision == ProductPrecision::bf16 && x.scalar_type() == at::kFloat;
}

int64_t rows_of(const at::Tensor& x) { return x.numel() / std::max<int64_t>(1, x.size(-1)); }

/// x and weight have type T; bias and y have the type of its sums.
template <class T>
void forward_map(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& y) {
  using Sum = SumOf<T>;
  const int64_t rows = rows_of(x), in = weight.size(1), out = weight.size(0);
  Sum* to = y.mutable_data_ptr<Sum>();
  if constexpr (std::is_same_v<T, Sum>) {
    if (rows == 1) {
      // Generation: the weights are read once, so memory bandwidth is the limit.
      const T *w = weight.const_data_ptr<T>(), *start = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
      at::parallel_for(0, out, std::max<int64_t>(4, 8 * kWorthAThread / in), [&](int64_t begin, int64_t end) {
        matrix_vector(w + begin * in, x.const_data_ptr<T>(), start == nullptr ? nullptr : start + begin, to + begin,
                      end - begin, in);
      });
      return;
    }
  }
  if (bias.defined()) {
    const Sum* from = bias.const_data_ptr<Sum>();
    at::parallel_for(0, rows, std::max<int64_t>(1, kWorthAThread / out), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) std::copy(from, from + out, to + row * out);
    });
  }
  gemm<T>(rows, out, in, 1, {x.const_data_ptr<T>(), in}, transpose(weight.const_data_ptr<T>(), in),
          bias.defined() ? 1 : 0, to, out);
}

/// Whether the rows of x are contiguous and equally spaced, as those of a narrowed tensor are.
bool lie_evenly(const at::Tensor& x) {
  if (x.dim() < 2 || x.stride(-1) != 1 || x.stride(-2) < x.size(-1)) return false;
  int64_t next = x.stride(-2) * x.size(-2);
  for (int64_t d = x.dim() - 3; d >= 0; --d) {
    if (x.size(d) == 1) continue;  // its stride has no meaning
    if (x.stride(d) != next) return false;
    next *= x.size(d);
  }
  return true;
}

/// An empty result for `out` outputs per row: [..,in] -> [..,out].
at::Tensor rows_like(const at::Tensor& x, int64_t out, const at::TensorOptions& options) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out;
  return at::empty(shape, options);
}

/// The sum of all rows: the gradient of a bias.
template <class T>
void sum_of_rows(const T* rows, int64_t count, int64_t width, T* sum) {
  constexpr int64_t kColumns = 64;
  std::fill(sum, sum + width, T(0));
  at::parallel_for(0, (width + kColumns - 1) / kColumns, std::max<int64_t>(1, kWorthAThread / (count * kColumns + 1)),
                   [&](int64_t begin, int64_t end) {
                     const int64_t first = begin * kColumns, last = std::min(width, end * kColumns);
                     for (int64_t row = 0; row < count; ++row)
                       accumulate(sum + first, rows + row * width + first, last - first);
                   });
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// parameters: all weights, each followed by its bias if biases[m] is 1. x is saved in the type of the factors, from
  /// which the backward pass knows the precision. Weights are rounded again there, since otherwise every segment's
  /// graph would hold a copy.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList parameters,
                               const std::vector<int64_t>& biases) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor factor = factor_of(x);
    variable_list saved = {factor}, outputs;
    size_t next = 0;
    for (const int64_t bias : biases) {
      saved.push_back(parameters[next++]);
      outputs.push_back(run(factor, saved.back(), bias != 0 ? parameters[next++] : at::Tensor()));
    }
    ctx->set_materialize_grads(false);
    ctx->save_for_backward(saved);
    ctx->saved_data["biases"] = biases;
    return outputs;
  }

  static at::Tensor factor_of(const at::Tensor& x) { return rounds(x) ? x.to(at::kBFloat16) : x; }

  /// y for x already rounded as a factor.
  static at::Tensor run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    at::Tensor y = rows_like(x, weight.size(0), weight.options());
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear",
                                   [&] { forward_map<scalar_t>(x, weight.to(x.scalar_type()), bias, y); });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const int64_t rows = rows_of(x), in = x.size(-1);
    const std::vector<int64_t> biases = ctx->saved_data["biases"].toIntVector();
    const bool wants_x = ctx->needs_input_grad(0);
    bool first = true;
    variable_list result(1);
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear_backward", [&] {
      using Sum = SumOf<scalar_t>;
      for (size_t m = 0; m < grads.size(); ++m) {
        const size_t weight_edge = result.size(), bias_edge = biases[m] != 0 ? weight_edge + 1 : 0;
        result.resize(weight_edge + (bias_edge > 0 ? 2 : 1));
        if (!grads[m].defined()) continue;
        const at::Tensor grad = grads[m].contiguous(), factor = grad.to(x.scalar_type());
        const int64_t out = saved[1 + m].size(0);
        const at::TensorOptions options = grad.options();
        const scalar_t* from = factor.const_data_ptr<scalar_t>();
        if (wants_x) {
          const at::Tensor weight = saved[1 + m].to(x.scalar_type());
          if (first) result[0] = at::empty(x.sizes(), options);
          gemm<scalar_t>(rows, in, out, 1, {from, out}, {weight.const_data_ptr<scalar_t>(), in}, first ? 0 : 1,
                         result[0].template mutable_data_ptr<Sum>(), in);
          first = false;
        }
        if (ctx->needs_input_grad(weight_edge)) {
          at::Tensor& to = result[weight_edge] = at::empty({out, in}, options);
          gemm<scalar_t>(out, in, rows, 1, transpose(from, out), {x.const_data_ptr<scalar_t>(), in}, 0,
                         to.mutable_data_ptr<Sum>(), in);
        }
        if (bias_edge > 0 && ctx->needs_input_grad(bias_edge)) {
          at::Tensor& to = result[bias_edge] = at::empty({out}, options);
          sum_of_rows(grad.const_data_ptr<Sum>(), rows, out, to.mutable_data_ptr<Sum>());
        }
      }
    });
    result.emplace_back();  // gradient of `biases`
    return result;
  }
};

/// With LibTorch, on other devices.
at::Tensor by_libtorch(const at::Tensor& x, const LinearMap& map) {
  if (!rounds(x)) return at::linear(x, map.weight, map.bias);
  const at::Tensor y = at::linear(x.to(at::kBFloat16), map.weight.to(at::kBFloat16)).to(at::kFloat);
  return map.bias.defined() ? y + map.bias : y;
}

}  // namespace

ProductPrecisionGuard::ProductPrecisionGuard(ProductPrecision precision)
    : before_(std::exchange(product_precision, precision)) {}
ProductPrecisionGuard::~ProductPrecisionGuard() { product_precision = before_; }
ProductPrecision product_precision_now() { return product_precision; }

at::Tensor linear(const at::Tensor& x, const PackedLinear& weight, const at::Tensor& bias) {
  const at::Tensor rows = lie_evenly(x) ? x : x.contiguous(), start = bias.defined() ? bias.contiguous() : bias;
  // The stride of a single row that is contiguous may be any number.
  const int64_t stride = rows.is_contiguous() ? rows.size(-1) : rows.stride(-2);
  const DeclaredProducts products("mnemo::linear", [&] { return rows_of(rows) * weight.in() * weight.out(); });
  at::Tensor y = rows_like(rows, weight.out(), rows.options());
  weight(rows.const_data_ptr<float>(), rows_of(rows), stride, y.mutable_data_ptr<float>(), weight.out(),
         start.defined() ? start.const_data_ptr<float>() : nullptr);
  return y;
}

std::vector<at::Tensor> linear_maps(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  const bool plain = x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) && x.numel() > 0;
  std::vector<at::Tensor> outputs, parameters;
  std::vector<int64_t> biases;
  if (!plain) {
    for (const LinearMap& map : maps) outputs.push_back(by_libtorch(x, map));
    return outputs;
  }
  const DeclaredProducts products("mnemo::linear", [&] {
    int64_t count = 0;
    for (const LinearMap& map : maps) count += rows_of(x) * map.weight.numel();
    return count;
  });
  const bool with_graph = at::GradMode::is_enabled(),
             may_be_packed = !with_graph && x.scalar_type() == at::kFloat && !rounds(x);
  at::Tensor rows, factor;  // made when a layer needs them
  for (const LinearMap& map : maps) {
    if (map.weight.size(1) != x.size(-1) || map.weight.scalar_type() != x.scalar_type()) {
      throw base::ShapeError(fmt::format("[linear] expected rows of {} numbers of type {}, found {} of type {}",
                                         map.weight.size(1), at::toString(map.weight.scalar_type()), x.size(-1),
                                         at::toString(x.scalar_type())));
    }
    if (const PackedLinear* packed = may_be_packed ? packed_now(map.weight) : nullptr) {
      outputs.push_back(linear(x, *packed, map.bias));
      continue;
    }
    if (!rows.defined()) {
      rows = x.contiguous();
      factor = with_graph ? rows : LinearFunction::factor_of(rows);
    }
    const at::Tensor weight = map.weight.contiguous(), bias = map.bias.defined() ? map.bias.contiguous() : map.bias;
    if (!with_graph) {
      outputs.push_back(LinearFunction::run(factor, weight, bias));
      continue;
    }
    parameters.push_back(weight);
    if (bias.defined()) parameters.push_back(bias);
    biases.push_back(bias.defined() ? 1 : 0);
  }
  return with_graph ? LinearFunction::apply(rows, at::TensorList(parameters), biases) : outputs;
}

}  // namespace mnemo::ops
