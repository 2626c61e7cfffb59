#include "ops/attention/attention.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/attention/attention_tiles.h"
#include "ops/cuda.h"
#include "ops/dropout.h"
#include "ops/linear/products.h"
#include "ops/naive/attention.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// All inputs of attention; owns the memory that the problem points to.
struct Inputs {
  at::Tensor q, k, v, u, v_bias, r, scores, offsets, bounds, valid;
  double scale;
  DropoutDraw dropout = {};

  template <class T>
  AttentionProblem<T> problem() const {
    AttentionProblem<T> p{};
    p.batch = q.size(0), p.heads = q.size(1), p.queries = q.size(2), p.width = q.size(3);
    p.keys = k.size(2), p.value_width = v.size(3);
    p.distances = r.defined() ? r.size(0) : scores.defined() ? scores.size(3) : 0;
    p.q = heads_of<const T>(q), p.k = heads_of<const T>(k), p.v = heads_of<const T>(v);
    if (r.defined()) p.r = {r.const_data_ptr<T>(), 0, r.stride(1), r.stride(0)};
    if (u.defined()) p.u = u.const_data_ptr<T>();
    if (v_bias.defined()) p.v_bias = v_bias.const_data_ptr<T>();
    p.scores = heads_of<const T>(scores);
    p.offsets = offsets.const_data_ptr<int32_t>(), p.bounds = bounds.const_data_ptr<int32_t>();
    if (valid.defined()) p.valid = valid.const_data_ptr<bool>();
    p.all = plain_form({p.keys, offsets, bounds, valid}) == Plain::all;
    p.scale = static_cast<T>(scale);
    p.dropout = dropout;
    return p;
  }
};

Inputs inputs_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                 const KeyRanges& ranges, double scale) {
  auto contiguous = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; };
  at::Tensor r = positions.r;
  if (r.defined() && (r.stride(2) != 1 || r.stride(0) < r.size(2))) r = r.contiguous();
  return {with_rows(q),
          with_rows(k),
          with_rows(v),
          contiguous(positions.u),
          contiguous(positions.v),
          r,
          with_rows(positions.scores),
          ranges.offsets,
          ranges.bounds,
          contiguous(ranges.valid),
          scale};
}

struct Outputs {
  at::Tensor o, log_sum;
};

/// Number of rows above which LibTorch's kernel is faster than ours, for causal attention and for full attention.
/// Shorter inputs, and everything that it does not support, run here.
constexpr int64_t kLibraryCausal = 4096, kLibraryAll = 512;

/// The form for which LibTorch's forward pass is faster; `no` if ours is. Its backward pass is faster only for `all`.
Plain library_form(const Inputs& in) {
  const bool positions = in.u.defined() || in.v_bias.defined() || in.r.defined() || in.scores.defined();
  const int64_t rows = std::min(in.q.size(2), in.k.size(2));
  if (positions || in.dropout.p > 0.0 || in.q.scalar_type() != at::kFloat || rows < kLibraryAll ||
      in.q.size(3) != in.v.size(3))
    return Plain::no;
  const Plain plain = plain_form({in.k.size(2), in.offsets, in.bounds, in.valid});
  return plain == Plain::causal && rows < kLibraryCausal ? Plain::no : plain;
}

std::optional<Outputs> library_forward(const Inputs& in) {
  const Plain plain = library_form(in);
  if (plain == Plain::no) return {};
  auto [o, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(in.q, in.k, in.v, 0.0, plain == Plain::causal, {},
                                                                      in.scale);
  return Outputs{std::move(o), log_sum.contiguous()};
}

Outputs attention_forward(const Inputs& in, bool for_backward) {
  if (std::optional<Outputs> done = library_forward(in)) return *done;
  Outputs out{empty_heads(in.q, in.q.size(2), in.v.size(3)), {}};
  if (for_backward) out.log_sum = at::empty({in.q.size(0), in.q.size(1), in.q.size(2)}, in.q.options());
  AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "attention", [&] {
    attention_forward<scalar_t>(in.problem<scalar_t>(), heads_of<scalar_t>(out.o),
                                for_backward ? out.log_sum.mutable_data_ptr<scalar_t>() : nullptr);
  });
  return out;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  using Optional = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Optional& u, const Optional& v_bias, const Optional& r, const Optional& scores,
                            const at::Tensor& offsets, const at::Tensor& bounds, const Optional& valid, double scale,
                            const DropoutDraw& dropout) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto given = [](const Optional& tensor) { return tensor.value_or(at::Tensor()); };
    const Inputs in{q,     k,      v, given(u), given(v_bias), given(r), given(scores), offsets, bounds, given(valid),
                    scale, dropout};
    Outputs out = attention_forward(in, true);
    ctx->save_for_backward(
        {in.q, in.k, in.v, in.u, in.v_bias, in.r, in.scores, in.offsets, in.bounds, in.valid, out.o, out.log_sum});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["p"] = dropout.p;
    ctx->saved_data["seed"] = dropout.seed;
    ctx->saved_data["first"] = dropout.first;
    return out.o;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const auto saved = [ctx](const char* name) { return ctx->saved_data[name]; };
    const DropoutDraw dropout{saved("p").toDouble(), saved("seed").toInt(), saved("first").toInt()};
    const Inputs in{s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], saved("scale").toDouble(), dropout};
    const at::Tensor &o = s[10], &log_sum = s[11], grad_o = with_rows(grads[0]);
    const int64_t batch = in.q.size(0), heads = in.q.size(1);
    const at::TensorOptions options = in.q.options();

    const at::Tensor none;
    if (library_form(in) == Plain::all) {
      auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad_o, in.q, in.k, in.v, o, log_sum, 0.0, false, {}, in.scale);
      return {of_q, of_k, of_v, none, none, none, none, none, none, none, none, none};
    }

    // Gradients that are summed over the batch have one partial sum per part; the parts give every thread a head.
    const int64_t parts = parts_of(batch, heads);
    at::Tensor grad_q = empty_heads(in.q, in.q.size(2), in.q.size(3));
    at::Tensor grad_k = at::zeros({batch, in.k.size(2), heads, in.k.size(3)}, options).transpose(1, 2);
    at::Tensor grad_v = at::zeros({batch, in.v.size(2), heads, in.v.size(3)}, options).transpose(1, 2);
    auto partial = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return at::Tensor();
      std::vector<int64_t> shape = tensor.sizes().vec();
      shape.insert(shape.begin(), parts);
      return at::zeros(shape, options);
    };
    at::Tensor grad_u = partial(in.u), grad_v_bias = partial(in.v_bias), grad_r = partial(in.r);
    at::Tensor grad_scores = in.scores.defined() ? at::empty(in.scores.sizes(), options) : at::Tensor();
    AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "attention_backward", [&] {
      AttentionGradients<scalar_t> g{};
      g.o = heads_of<const scalar_t>(o), g.grad_o = heads_of<const scalar_t>(grad_o);
      g.log_sum = log_sum.const_data_ptr<scalar_t>();
      g.q = heads_of<scalar_t>(grad_q), g.k = heads_of<scalar_t>(grad_k), g.v = heads_of<scalar_t>(grad_v);
      g.scores = heads_of<scalar_t>(grad_scores);
      if (grad_r.defined())
        g.r = {grad_r.mutable_data_ptr<scalar_t>(), grad_r.stride(0), grad_r.stride(2), grad_r.stride(1)};
      if (grad_u.defined()) g.u = grad_u.mutable_data_ptr<scalar_t>();
      if (grad_v_bias.defined()) g.v_bias = grad_v_bias.mutable_data_ptr<scalar_t>();
      g.parts = parts;
      attention_backward<scalar_t>(in.problem<scalar_t>(), g);
    });
    auto total = [&](const at::Tensor& tensor) {
      return !tensor.defined() ? tensor : parts == 1 ? tensor.squeeze(0) : tensor.sum(0);
    };
    return {grad_q, grad_k, grad_v, total(grad_u), total(grad_v_bias), total(grad_r), grad_scores, none,
            none,   none,   none,   none};
  }
};

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
           const KeyRanges& ranges) {
  const int64_t queries = q.size(2), keys = k.size(2);
  base::ensure(ranges.queries() == queries && ranges.keys == keys && v.size(2) == keys,
               "attention: key ranges of another size");
  base::ensure(!positions.scores.defined() || (!positions.r.defined() && !positions.v.defined()),
               "attention: position scores and distances exclude each other");
  base::ensure(!positions.r.defined() || positions.r.size(0) >= keys, "attention: fewer distances than keys");
}

/// The number of pairs of a query and a key it may see, including padding.
int64_t pairs(const KeyRanges& ranges) {
  return (ranges.bounds.select(1, 1) - ranges.bounds.select(1, 0)).sum().item<int64_t>();
}

}  // namespace

at::Tensor rel_shift(const at::Tensor& position, int64_t num_keys, RelShift shift) {
  const int64_t queries = position.size(-2);
  if (shift == RelShift::faithful) {
    at::Tensor padded = at::constant_pad_nd(position, {1, 0});
    std::vector<int64_t> shape = position.sizes().vec();
    shape[shape.size() - 2] = num_keys + 1;
    shape.back() = queries;
    return padded.reshape(shape).narrow(-2, 1, num_keys).reshape([&] {
      shape[shape.size() - 2] = queries;
      shape.back() = num_keys;
      return shape;
    }());
  }
  // Column j + (Q-1) - i of row i. In memory that is Q-1 + i * (width - 1) + j: rows one shorter, from Q-1 on.
  const int64_t width = num_keys + queries;
  return at::constant_pad_nd(position, {0, width - position.size(-1)})
      .flatten(-2)
      .narrow(-1, queries - 1, queries * (width - 1))
      .unflatten(-1, {queries, width - 1})
      .narrow(-1, 0, num_keys);
}

at::Tensor attention_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position, RelShift shift,
                            double scale) {
  const at::Tensor contents = at::matmul(q, k.transpose(-1, -2));
  return (shift == RelShift::none ? contents : contents + rel_shift(position, k.size(2), shift)) * scale;
}

at::Tensor attention_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position, RelShift shift,
                             const at::Tensor& mask, double scale) {
  at::Tensor scores = attention_scores(q, k, position, shift, scale);
  if (!mask.defined()) return at::softmax(scores, -1);
  const at::Tensor there = mask.to(q.device()), allowed = there.dim() == 2 ? there : there.unsqueeze(1);
  const at::Tensor any = allowed.any(-1, true);
  // Rows without keys get a harmless softmax first and are zeroed after it, so that no gradient is NaN.
  scores = scores.masked_fill(at::logical_and(at::logical_not(allowed), any), -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1) * any;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale, double dropout) {
  check(q, k, v, positions, ranges);
  const DeclaredProducts products("mnemo::attention", [&] {
    return q.size(0) * q.size(1) * pairs(ranges) * (q.size(3) * (positions.r.defined() ? 2 : 1) + v.size(3));
  });
  if (q.is_cuda() && dropout > 0.0) return attention_naive(q, k, v, positions, ranges, scale, dropout);
  if (q.is_cuda()) return cuda::attention(q, k, v, positions, ranges, scale);
  if (q.scalar_type() == at::kBFloat16) {
    const auto wide = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kFloat) : tensor; };
    const Positions terms{wide(positions.u), wide(positions.v), wide(positions.r), wide(positions.scores)};
    return attention(wide(q), wide(k), wide(v), terms, ranges, scale, dropout).to(at::kBFloat16);
  }
  Inputs in = inputs_of(q, k, v, positions, ranges, scale);
  if (dropout > 0.0) in.dropout = draw_dropout(dropout, q.size(0), q.size(0) * q.size(1) * q.size(2) * k.size(2));
  if (!at::GradMode::is_enabled()) return attention_forward(in, false).o;
  auto optional = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return AttentionFunction::apply(in.q, in.k, in.v, optional(in.u), optional(in.v_bias), optional(in.r),
                                  optional(in.scores), in.offsets, in.bounds, optional(in.valid), scale, in.dropout);
}

}  // namespace mnemo::ops
