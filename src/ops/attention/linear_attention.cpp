#include "ops/attention/linear_attention.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace mnemo::ops {

at::Tensor LinearNormaliser::divide(const at::Tensor& numerator, const at::Tensor& a, bool causal) const {
  at::Tensor divisor = a;
  if (kind == Kind::plus_eps) divisor = a + eps;
  if (kind == Kind::at_least_one) divisor = (causal ? a : a.abs()).clamp_min(1.0);
  // If nothing was written, both are zero, and without eps the result would be 0 / 0.
  if (kind == Kind::plain) divisor = at::where(a == 0.0, 1.0, a);
  return numerator / divisor.unsqueeze(-1);
}

namespace {

constexpr int64_t kLinearChunk = 64;

at::Tensor into_chunks(const at::Tensor& x, int64_t chunks, int64_t chunk) {
  const int64_t missing = chunks * chunk - x.size(2);
  at::Tensor full = x;
  if (missing > 0) {
    std::vector<int64_t> pad(static_cast<size_t>(2 * (x.dim() - 2)), 0);
    pad.back() = missing;
    full = at::constant_pad_nd(x, pad);
  }
  return full.unflatten(2, {chunks, chunk});
}

/// Sums of values weighted by f(q).f(k), without a divisor: v [B,H,T,w], sums [B,H,f,w] -> [B,H,T,w] and the new sums.
std::pair<at::Tensor, at::Tensor> weighted_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const at::Tensor& log_gate, const at::Tensor& written,
                                                const at::Tensor& sums) {
  const int64_t time = q.size(2), chunk = std::min(time, kLinearChunk), chunks = (time + chunk - 1) / chunk;
  // Contiguous now, since every product with strided heads would copy them again.
  const auto cut = [&](const at::Tensor& x) { return into_chunks(x, chunks, chunk).contiguous(); };
  const at::Tensor qs = cut(q), vs = into_chunks(v, chunks, chunk);  // [B,H,N,C,f], [B,H,N,C,w]
  at::Tensor ks = cut(k), from_past, kept;
  at::Tensor scores = at::matmul(qs, ks.transpose(-1, -2));  // [B,H,N,C,C]
  if (log_gate.defined()) {
    const at::Tensor sum = cut(log_gate).cumsum(-1), write = cut(written);  // [B,H,N,C]
    const at::Tensor later = at::ones({chunk, chunk}, q.options().dtype(at::kBool)).triu(1);
    const at::Tensor between = (sum.unsqueeze(-1) - sum.unsqueeze(-2))
                                   .masked_fill(later, -std::numeric_limits<double>::infinity());
    scores = scores * between.exp() * write.unsqueeze(-2);
    from_past = sum.exp().unsqueeze(-1);
    const at::Tensor last = sum.narrow(-1, chunk - 1, 1);
    kept = last.exp().unsqueeze(-1);  // [B,H,N,1,1]
    ks = ks * ((last - sum).exp() * write).unsqueeze(-1);
  } else {
    scores = scores.tril();
  }
  // The sums before each chunk, [B,H,N,f,w]; they depend only on earlier chunks, bit for bit.
  const at::Tensor own = at::matmul(ks.transpose(-1, -2), vs);
  at::Tensor now = sums;
  std::vector<at::Tensor> before;
  for (const at::Tensor& of_chunk : own.unbind(2)) {
    before.push_back(now);
    now = (kept.defined() ? now * kept.select(2, static_cast<int64_t>(before.size()) - 1) : now) + of_chunk;
  }
  const at::Tensor both = at::matmul(scores, vs) +
                          at::matmul(from_past.defined() ? qs * from_past : qs, at::stack(before, 2));
  const at::Tensor o = both.flatten(2, 3);
  return {o.size(2) == time ? o : o.narrow(2, 0, time), now};
}

}  // namespace

LinearOutput linear_attention_causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& log_gate, const at::Tensor& written, const LinearSums& sums,
                                     const LinearNormaliser& normaliser, const TurnedFeatures& turned) {
  const int64_t width = v.size(3);
  if (turned.q.defined()) {
    const auto [above, s] = weighted_sums(turned.q, turned.k, v, log_gate, written, sums.s);
    const auto [below, z] = weighted_sums(q, k, at::ones_like(v.narrow(3, 0, 1)), log_gate, written,
                                          sums.z.unsqueeze(-1));
    return {normaliser.divide(above, below.select(-1, 0), true), {s, z.squeeze(-1)}};
  }
  // v gets an additional column of ones: its sums are those of the weights.
  const auto [both, now] = weighted_sums(q, k, at::constant_pad_nd(v, {0, 1}, 1.0), log_gate, written,
                                         at::cat({sums.s, sums.z.unsqueeze(-1)}, -1));
  return {normaliser.divide(both.narrow(-1, 0, width), both.select(-1, width), true),
          {now.narrow(-1, 0, width).contiguous(), now.select(-1, width).contiguous()}};
}

at::Tensor linear_attention_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const LinearNormaliser& normaliser, const TurnedFeatures& turned) {
  const at::Tensor s = at::matmul((turned.k.defined() ? turned.k : k).transpose(-1, -2), v);  // [B,H,f,d]
  const at::Tensor z = k.sum(2).unsqueeze(-1);                                                // [B,H,f,1]
  return normaliser.divide(at::matmul(turned.q.defined() ? turned.q : q, s), at::matmul(q, z).squeeze(-1), false);
}

at::Tensor elu_features(const at::Tensor& x) { return at::elu(x) + 1.0; }

at::Tensor t2r_features(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::relu(at::matmul(x, weight.transpose(-1, -2)) + bias.unsqueeze(1));
}

at::Tensor random_features(const at::Tensor& x, const at::Tensor& weight, double factor, double eps) {
  const at::Tensor norm = x.norm(2, -1, true);
  const at::Tensor u = x / (eps > 0.0 ? norm + eps : at::where(norm == 0.0, 1.0, norm));
  const at::Tensor angle = at::matmul(u, weight.transpose(-1, -2));
  return at::cat({angle.sin(), angle.cos()}, -1) * factor;
}

}  // namespace mnemo::ops
