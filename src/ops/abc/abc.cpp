#include "ops/abc/abc.h"

#include <torch/types.h>

#include <limits>

#include "ops/abc/abc_scan.h"
#include "ops/abc/abc_sums.h"

namespace mnemo::ops {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

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
