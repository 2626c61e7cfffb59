#include "ops/image/window_attention.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "ops/attention/heads.h"
#include "ops/linear/gemm.h"
#include "ops/linear/products.h"
#include "ops/naive/image.h"
#include "ops/row_kernels.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WindowInputs {
  at::Tensor q, k, v, bias, window_bias;
  double scale;
};

template <class T>
struct WindowProblem {
  int64_t batch, heads, queries, keys, width, value_width, windows;
  Heads<const T> q, k, v;
  const T *bias, *window_bias;
  T scale;

  explicit WindowProblem(const WindowInputs& in)
      : batch(in.q.size(0)),
        heads(in.q.size(1)),
        queries(in.q.size(2)),
        keys(in.k.size(2)),
        width(in.q.size(3)),
        value_width(in.v.size(3)),
        windows(in.window_bias.defined() ? in.window_bias.size(0) : 1),
        q(heads_of<const T>(in.q)),
        k(heads_of<const T>(in.k)),
        v(heads_of<const T>(in.v)),
        bias(in.bias.defined() ? in.bias.const_data_ptr<T>() : nullptr),
        window_bias(in.window_bias.defined() ? in.window_bias.const_data_ptr<T>() : nullptr),
        scale(static_cast<T>(in.scale)) {}

  int64_t area() const { return queries * keys; }
  /// s = q k^T scale + biases, for one head of one window.
  void scores(int64_t b, int64_t h, T* s) const {
    const T* by_place = bias == nullptr ? nullptr : bias + h * area();
    const T* by_window = window_bias == nullptr ? nullptr : window_bias + b % windows * area();
    if (by_place != nullptr) {
      sum_rows(by_place, by_window, s, area());
    } else if (by_window != nullptr) {
      std::copy(by_window, by_window + area(), s);
    }
    const bool starts = by_place != nullptr || by_window != nullptr;
    gemm<T>(queries, keys, width, scale, {q.row(b, h, 0), q.row_stride}, transpose(k.row(b, h, 0), k.row_stride),
            T(starts ? 1 : 0), s, keys);
  }
  /// s = softmax(scores), row by row.
  void weights(int64_t b, int64_t h, T* s) const {
    scores(b, h, s);
    softmax_rows<T>(s, queries, keys, keys, nullptr);
  }
  int64_t grain() const {
    constexpr int64_t kWorthAThread = 1 << 18;
    return std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, area() * width));
  }
};

at::Tensor forward_windows(const WindowInputs& in) {
  at::Tensor o = empty_heads(in.q, in.q.size(2), in.v.size(3));
  AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "window_attention", [&] {
    const WindowProblem<scalar_t> p(in);
    const auto out = heads_of<scalar_t>(o);
    parallel_products(0, p.batch * p.heads, p.grain(), [&](int64_t begin, int64_t end) {
      Scratch<scalar_t> scratch(Scratch<scalar_t>::padded(p.area() + kSoftmaxBeyond));
      scalar_t* s = scratch.take(p.area() + kSoftmaxBeyond);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t b = task / p.heads, h = task % p.heads;
        p.weights(b, h, s);
        gemm<scalar_t>(p.queries, p.value_width, p.keys, 1, {s, p.keys}, {p.v.row(b, h, 0), p.v.row_stride}, 0,
                       out.row(b, h, 0), out.row_stride);
      }
    });
  });
  return o;
}

/// Gradients of q, k, v, and of the bias if there is one.
variable_list backward_windows(const WindowInputs& in, const at::Tensor& grad_o) {
  const at::Tensor grad_q = empty_heads(in.q, in.q.size(2), in.q.size(3)),
                   grad_k = empty_heads(in.k, in.k.size(2), in.k.size(3)),
                   grad_v = empty_heads(in.v, in.v.size(2), in.v.size(3));
  // The bias's gradient is a sum over windows: each task handles a part of the windows of one head.
  const int64_t batch = in.q.size(0), heads = in.q.size(1);
  const int64_t parts = parts_of(batch, heads), most = (batch + parts - 1) / parts;
  const at::Tensor grad_bias = in.bias.defined() ? at::zeros({parts, heads, in.q.size(2), in.k.size(2)}, in.q.options())
                                                 : at::Tensor();
  AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "window_attention_backward", [&] {
    const WindowProblem<scalar_t> p(in);
    const auto go = heads_of<const scalar_t>(grad_o);
    const auto gq = heads_of<scalar_t>(grad_q), gk = heads_of<scalar_t>(grad_k), gv = heads_of<scalar_t>(grad_v);
    const int64_t area = p.area();
    parallel_products(0, parts * heads, 1, [&](int64_t begin, int64_t end) {
      Scratch<scalar_t> scratch(2 * Scratch<scalar_t>::padded(area + kSoftmaxBeyond));
      scalar_t *s = scratch.take(area + kSoftmaxBeyond), *grad = scratch.take(area);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t part = task / heads, h = task % heads;
        for (int64_t b = part * most; b < std::min(batch, (part + 1) * most); ++b) {
          p.weights(b, h, s);
          gemm<scalar_t>(p.queries, p.keys, p.value_width, 1, {go.row(b, h, 0), go.row_stride},
                         transpose(p.v.row(b, h, 0), p.v.row_stride), 0, grad, p.keys);
          for (int64_t r = 0; r < p.queries; ++r) {
            scalar_t *weights = s + r * p.keys, *row = grad + r * p.keys;
            softmax_grad<scalar_t>(weights, row, p.keys, inner_product(weights, row, p.keys), 1);
          }
          if (in.bias.defined())
            accumulate(grad_bias.mutable_data_ptr<scalar_t>() + (part * heads + h) * area, grad, area);
          gemm<scalar_t>(p.keys, p.value_width, p.queries, 1, transpose<scalar_t>(s, p.keys),
                         {go.row(b, h, 0), go.row_stride}, 0, gv.row(b, h, 0), gv.row_stride);
          gemm<scalar_t>(p.keys, p.width, p.queries, p.scale, transpose<scalar_t>(grad, p.keys),
                         {p.q.row(b, h, 0), p.q.row_stride}, 0, gk.row(b, h, 0), gk.row_stride);
          gemm<scalar_t>(p.queries, p.width, p.keys, p.scale, {grad, p.keys}, {p.k.row(b, h, 0), p.k.row_stride}, 0,
                         gq.row(b, h, 0), gq.row_stride);
        }
      }
    });
  });
  return {grad_q, grad_k, grad_v, grad_bias.defined() ? grad_bias.sum(0) : grad_bias};
}

struct WindowAttentionFunction : torch::autograd::Function<WindowAttentionFunction> {
  using Optional = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Optional& bias, const Optional& window_bias, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const WindowInputs in{q, k, v, bias.value_or(at::Tensor()), window_bias.value_or(at::Tensor()), scale};
    ctx->save_for_backward({in.q, in.k, in.v, in.bias, in.window_bias});
    ctx->saved_data["scale"] = scale;
    return forward_windows(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    variable_list all = backward_windows({s[0], s[1], s[2], s[3], s[4], ctx->saved_data["scale"].toDouble()},
                                         with_rows(grads[0]));
    all.resize(6);
    return all;
  }
};

}  // namespace

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                            const at::Tensor& window_bias, double scale) {
  const int64_t heads = q.size(1), queries = q.size(2), keys = k.size(2);
  base::ensure(!bias.defined() || bias.sizes() == at::IntArrayRef({heads, queries, keys}),
               "window_attention: a bias of another size");
  base::ensure(!window_bias.defined() || (window_bias.size(1) == queries && window_bias.size(2) == keys &&
                                          q.size(0) % window_bias.size(0) == 0),
               "window_attention: {} windows have no window bias of another size", q.size(0));
  const bool ours = q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble);
  if (!ours) return window_attention_naive(q, k, v, bias, window_bias, scale);
  const DeclaredProducts products("mnemo::window_attention",
                                  [&] { return q.size(0) * heads * queries * keys * (q.size(3) + v.size(3)); });
  const auto flat = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; };
  const WindowInputs in{with_rows(q), with_rows(k), with_rows(v), flat(bias), flat(window_bias), scale};
  if (!at::GradMode::is_enabled()) return forward_windows(in);
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return WindowAttentionFunction::apply(in.q, in.k, in.v, optional(in.bias), optional(in.window_bias), scale);
}

}  // namespace mnemo::ops
