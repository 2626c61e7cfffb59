#include "ops/abc/abc.h"

#include <torch/types.h>

#include <limits>

#include "ops/abc/abc_scan.h"
#include "ops/abc/abc_sums.h"

namespace mnemo::ops {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// exp(a - b), where a = b = -inf (nothing written) gives 0.
at::Tensor exp_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor empty = at::isneginf(b);
  return at::exp(at::where(empty, at::full_like(a, kMinusInfinity), a) - b.masked_fill(empty, 0.0));
}

/// The weights of relu and sigmoid controls, zero for padding. s [B,H,T,n].
at::Tensor plain_weights(const at::Tensor& s, const at::Tensor& valid, AbcActivation activation) {
  const at::Tensor a = activation == AbcActivation::relu ? at::relu(s) : at::sigmoid(s);
  return valid.defined() ? a * valid.unsqueeze(1).unsqueeze(-1).to(a.scalar_type()) : a;
}

at::Tensor masked_logits(const at::Tensor& s, const at::Tensor& valid) {
  return valid.defined() ? s.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(-1), kMinusInfinity) : s;
}

/// relu and sigmoid: running sums, divided by the sum of their weights when read.
AbcOutput plain_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& a,
                     const AbcMemory& memory, double eps, double scale) {
  const at::Tensor z = memory.z.unsqueeze(2) + a.cumsum(2);  // [B,H,T,n]
  const AbcSumsOutput out = abc_sums(q, k, v, a, {memory.k, memory.v}, {(z + eps).reciprocal(), {}}, scale);
  return {out.o, {out.sums.k, out.sums.v, z.select(2, z.size(2) - 1)}};
}

}  // namespace

AbcMemory abc_empty(int64_t batch, int64_t heads, int64_t slots, int64_t head_dim, AbcActivation activation,
                    const at::TensorOptions& options) {
  return {at::zeros({batch, heads, slots, head_dim}, options), at::zeros({batch, heads, slots, head_dim}, options),
          at::full({batch, heads, slots}, activation == AbcActivation::exp ? kMinusInfinity : 0.0, options)};
}

AbcOutput abc_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                           const AbcMemory& memory, const at::Tensor& valid, AbcActivation activation, double eps,
                           double scale) {
  const bool exp = activation == AbcActivation::exp;
  const at::Tensor weights = exp ? masked_logits(s, valid) : plain_weights(s, valid, activation);
  AbcMemory now = memory;
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < q.size(2); ++t) {
    const at::Tensor w = weights.select(2, t);          // [B,H,n]
    const at::Tensor kt = k.select(2, t).unsqueeze(2);  // [B,H,1,d]
    const at::Tensor vt = v.select(2, t).unsqueeze(2);
    at::Tensor read_k, read_v;
    if (exp) {
      const at::Tensor both_empty = at::logical_and(at::isneginf(now.z), at::isneginf(w));
      const at::Tensor z = at::where(both_empty, now.z,
                                     at::logaddexp(now.z.masked_fill(both_empty, 0.0), w.masked_fill(both_empty, 0.0)));
      const at::Tensor keep = exp_difference(now.z, z).unsqueeze(-1), write = exp_difference(w, z).unsqueeze(-1);
      now = {keep * now.k + write * kt, keep * now.v + write * vt, z};
      read_k = now.k;
      read_v = now.v;
    } else {
      const at::Tensor a = w.unsqueeze(-1);
      now = {now.k + a * kt, now.v + a * vt, now.z + w};
      read_k = now.k / (now.z + eps).unsqueeze(-1);
      read_v = now.v / (now.z + eps).unsqueeze(-1);
    }
    const at::Tensor p = at::softmax(at::matmul(read_k, q.select(2, t).unsqueeze(-1)) * scale, -2);  // [B,H,n,1]
    outputs.push_back((p * read_v).sum(-2));
  }
  return {at::stack(outputs, 2), now};
}

AbcOutput abc_causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                     const AbcMemory& memory, const at::Tensor& valid, AbcActivation activation, double eps,
                     double scale) {
  if (q.scalar_type() == at::kBFloat16 && (q.is_cpu() || activation != AbcActivation::exp)) {
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kFloat); };
    const AbcOutput out = abc_causal(wide(q), wide(k), wide(v), wide(s),
                                     {wide(memory.k), wide(memory.v), wide(memory.z)}, valid, activation, eps, scale);
    const at::ScalarType kept = memory.k.scalar_type();
    return {out.o.to(at::kBFloat16), {out.memory.k.to(kept), out.memory.v.to(kept), out.memory.z.to(kept)}};
  }
  if (activation != AbcActivation::exp) {
    return plain_scan(q, k, v, plain_weights(s, valid, activation), memory, eps, scale);
  }
  return abc_exp_scan(q, k, v, masked_logits(s, valid), memory, scale);
}

AbcSums abc_full_memory(const at::Tensor& k, const at::Tensor& v, const at::Tensor& s, const at::Tensor& valid,
                        AbcActivation activation, double eps) {
  at::Tensor phi;  // [B,H,S,n]: weight of token i in slot j
  if (activation == AbcActivation::exp) {
    phi = at::_safe_softmax(masked_logits(s, valid), 2);
  } else {
    const at::Tensor a = plain_weights(s, valid, activation);
    phi = a / (a.sum(2, true) + eps);
  }
  return {at::matmul(phi.transpose(-1, -2), k), at::matmul(phi.transpose(-1, -2), v)};
}

AbcSumsOutput abc_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const at::Tensor& valid, AbcActivation activation, double eps, double scale) {
  const AbcSums memory = abc_full_memory(k, v, s, valid, activation, eps);
  return {at::matmul(at::softmax(at::matmul(q, memory.k.transpose(-1, -2)) * scale, -1), memory.v), memory};
}

}  // namespace mnemo::ops
