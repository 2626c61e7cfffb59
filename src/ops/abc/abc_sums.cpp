#include "ops/abc/abc_sums.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>
#include <type_traits>

#include "ops/abc/abc_chunks.h"
#include "ops/abc/abc_sum_chunks.h"
#include "ops/linear/products.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kClosed = -std::numeric_limits<double>::infinity();

/// 0 for an open slot and -inf for a closed one, in the scores' type; undefined if all are open.
at::Tensor bias_of(const at::Tensor& open, const at::Tensor& like) {
  if (!open.defined()) return {};
  return at::zeros(open.sizes(), like.options().requires_grad(false)).masked_fill_(open.logical_not(), kClosed);
}

at::Tensor times(const at::Tensor& x, const at::Tensor& factor) { return factor.defined() ? x * factor : x; }

/// Weights of the slots' values [..,n]: softmax over open slots of factor . y, times factor.
at::Tensor weights_of(const at::Tensor& y, const at::Tensor& factor, const at::Tensor& open) {
  const at::Tensor scores = times(y, factor);
  if (!open.defined()) return times(at::softmax(scores, -1), factor);
  return times(at::_safe_softmax(scores.masked_fill(open.logical_not(), kClosed), -1), factor);
}

struct SumInputs {
  at::Tensor q, k, v, phi, factor, bias;
  double scale;

  template <class T>
  AbcSumProblem<T> problem() const {
    return {q.size(0),
            q.size(1),
            q.size(2),
            phi.size(3),
            q.size(3),
            v.size(3),
            heads_of<const T>(q),
            heads_of<const T>(k),
            heads_of<const T>(v),
            heads_of<const T>(phi),
            heads_of<const T>(factor),
            heads_of<const T>(bias),
            static_cast<T>(scale)};
  }
};

template <class T>
AbcSumRows<T> data_of(const AbcSums& sums) {
  if (!sums.k.defined()) return {};
  if constexpr (std::is_const_v<T>) {
    using Plain = std::remove_const_t<T>;
    return {sums.k.const_data_ptr<Plain>(), sums.v.const_data_ptr<Plain>()};
  } else {
    return {sums.k.mutable_data_ptr<T>(), sums.v.mutable_data_ptr<T>()};
  }
}

struct SumRun {
  at::Tensor o;
  AbcSums sums, path;
};

SumRun run_sums(const SumInputs& in, const AbcSums& sums, bool keeps_path) {
  SumRun run{empty_heads(in.q, in.q.size(2), in.v.size(3)),
             {sums.k.clone(at::MemoryFormat::Contiguous), sums.v.clone(at::MemoryFormat::Contiguous)},
             {}};
  if (keeps_path) {
    const int64_t chunks = (in.q.size(2) + kAbcChunk - 1) / kAbcChunk;
    const auto path_of = [&](const at::Tensor& x) {
      return at::empty({x.size(0), x.size(1), chunks, x.size(2), x.size(3)}, x.options());
    };
    run.path = {path_of(sums.k), path_of(sums.v)};
  }
  AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "abc_sums", [&] {
    abc_sums_forward<scalar_t>(in.problem<scalar_t>(), heads_of<scalar_t>(run.o), data_of<scalar_t>(run.sums),
                               data_of<scalar_t>(run.path));
  });
  return run;
}

struct SumFunction : torch::autograd::Function<SumFunction> {
  using Optional = std::optional<at::Tensor>;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& phi, const Optional& factor, const Optional& bias,
                               const at::Tensor& sum_k, const at::Tensor& sum_v, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const SumInputs in{q, k, v, phi, factor.value_or(at::Tensor()), bias.value_or(at::Tensor()), scale};
    const SumRun run = run_sums(in, {sum_k, sum_v}, true);
    ctx->save_for_backward({q, k, v, phi, in.factor, in.bias, run.path.k, run.path.v});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["phi"] = phi.requires_grad();
    ctx->saved_data["factor"] = in.factor.defined() && in.factor.requires_grad();
    return {run.o, run.sums.k, run.sums.v};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const SumInputs in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], ctx->saved_data["scale"].toDouble()};
    const AbcSums path{saved[6], saved[7]};
    const int64_t time = in.q.size(2), slots = in.phi.size(3);
    const at::Tensor grad_o = with_rows(grads[0]);
    const at::Tensor grad_q = empty_heads(in.q, time, in.q.size(3)), grad_k = empty_heads(in.q, time, in.q.size(3)),
                     grad_v = empty_heads(in.q, time, in.v.size(3));
    at::Tensor grad_phi, grad_factor;
    if (ctx->saved_data["phi"].toBool()) grad_phi = empty_heads(in.q, time, slots);
    if (ctx->saved_data["factor"].toBool()) grad_factor = empty_heads(in.q, time, slots);
    // The gradients of the last sums become those of the first, in place.
    const AbcSums sums{grads[1].clone(at::MemoryFormat::Contiguous), grads[2].clone(at::MemoryFormat::Contiguous)};
    AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "abc_sums_backward", [&] {
      abc_sums_backward<scalar_t>(in.problem<scalar_t>(), data_of<const scalar_t>(path),
                                  {heads_of<const scalar_t>(grad_o), heads_of<scalar_t>(grad_q),
                                   heads_of<scalar_t>(grad_k), heads_of<scalar_t>(grad_v), heads_of<scalar_t>(grad_phi),
                                   heads_of<scalar_t>(grad_factor), data_of<scalar_t>(sums)});
    });
    return {grad_q, grad_k, grad_v, grad_phi, grad_factor, at::Tensor(), sums.k, sums.v, at::Tensor()};
  }
};

/// bfloat16 tensors as float32.
at::Tensor as_float(const at::Tensor& x) { return x.defined() && x.is_floating_point() ? x.to(at::kFloat) : x; }

}  // namespace

AbcSumsOutput abc_sums_by_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                                   const AbcSums& sums, const AbcReading& reading, double scale) {
  AbcSums now = sums;
  std::vector<at::Tensor> outputs;
  for (int64_t begin = 0; begin < q.size(2); begin += kAbcChunk) {
    const int64_t count = std::min(kAbcChunk, q.size(2) - begin);
    const auto part = [&](const at::Tensor& x) { return x.defined() ? x.narrow(2, begin, count) : x; };
    const at::Tensor qs = part(q), ks = part(k), vs = part(v), phis = part(phi);
    const at::Tensor a = at::matmul(qs, ks.transpose(-1, -2)).tril();                              // [B,H,C,C]
    const at::Tensor y = (at::matmul(a, phis) + at::matmul(qs, now.k.transpose(-1, -2))) * scale;  // [B,H,C,n]
    const at::Tensor weights = weights_of(y, part(reading.factor), part(reading.open));
    const at::Tensor mixed = at::matmul(weights, phis.transpose(-1, -2)).tril();
    outputs.push_back(at::matmul(mixed, vs) + at::matmul(weights, now.v));
    now = {now.k + at::matmul(phis.transpose(-1, -2), ks), now.v + at::matmul(phis.transpose(-1, -2), vs)};
  }
  return {at::cat(outputs, 2), now};
}

AbcSumsOutput abc_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                       const AbcSums& sums, const AbcReading& reading, double scale) {
  // Counted as in the formula, token by token; chunks replace a part of it by products between tokens.
  const DeclaredProducts products("mnemo::abc_sums", [&] {
    return phi.numel() * 2 * (q.size(3) + v.size(3));  // written to K and V, read by q and by the weights
  });
  if (q.scalar_type() == at::kBFloat16) {
    const AbcSumsOutput out = abc_sums(as_float(q), as_float(k), as_float(v), as_float(phi),
                                       {as_float(sums.k), as_float(sums.v)}, {as_float(reading.factor), reading.open},
                                       scale);
    const at::ScalarType kept = sums.k.scalar_type();
    return {out.o.to(at::kBFloat16), {out.sums.k.to(kept), out.sums.v.to(kept)}};
  }
  if (!q.is_cpu()) return abc_sums_by_products(q, k, v, phi, sums, reading, scale);
  const SumInputs in{with_rows(q),
                     with_rows(k),
                     with_rows(v),
                     with_rows(phi),
                     with_rows(reading.factor),
                     with_rows(bias_of(reading.open, q)),
                     scale};
  if (!at::GradMode::is_enabled()) {
    const SumRun run = run_sums(in, sums, false);
    return {run.o, run.sums};
  }
  const auto given = [](const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  const variable_list out = SumFunction::apply(in.q, in.k, in.v, in.phi, given(in.factor), given(in.bias), sums.k,
                                               sums.v, scale);
  return {out[0], {out[1], out[2]}};
}

AbcSumsOutput abc_sums_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                            const AbcReading& reading, double scale) {
  const at::Tensor write = phi.transpose(-1, -2), sum_k = at::matmul(write, k), sum_v = at::matmul(write, v);
  const at::Tensor y = at::matmul(q, sum_k.transpose(-1, -2)) * scale;
  return {at::matmul(weights_of(y, reading.factor, reading.open), sum_v), {sum_k, sum_v}};
}

}  // namespace mnemo::ops
