#include "ops/attention/linear_attention.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace mnemo::ops {
namespace {

constexpr int64_t kLinearChunk = 64;

/// numerator / normaliser(a); a [..], numerator [..,d].
at::Tensor normalised(const at::Tensor& numerator, const at::Tensor& a, const LinearNormaliser& normaliser,
                      bool causal) {
  using Kind = LinearNormaliser::Kind;
  at::Tensor divisor = a;
  if (normaliser.kind == Kind::plus_eps) divisor = a + normaliser.eps;
  if (normaliser.kind == Kind::at_least_one) divisor = (causal ? a : a.abs()).clamp_min(1.0);
  // If nothing was written, both are zero, and without eps the result would be 0 / 0.
  if (normaliser.kind == Kind::plain) divisor = at::where(a == 0.0, 1.0, a);
  return numerator / divisor.unsqueeze(-1);
}

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

}  // namespace

LinearOutput linear_attention_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& log_gate, const at::Tensor& written,
                                           const LinearSums& sums, const LinearNormaliser& normaliser) {
  LinearSums now = sums;
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < q.size(2); ++t) {
    at::Tensor kt = k.select(2, t);  // [B,H,f]
    if (log_gate.defined()) {
      const at::Tensor keep = log_gate.select(2, t).exp().unsqueeze(-1);
      kt = kt * written.select(2, t).unsqueeze(-1);
      now = {now.s * keep.unsqueeze(-1), now.z * keep};
    }
    now = {now.s + kt.unsqueeze(-1) * v.select(2, t).unsqueeze(2), now.z + kt};
    const at::Tensor qt = q.select(2, t);
    outputs.push_back(normalised((qt.unsqueeze(-1) * now.s).sum(2), (qt * now.z).sum(-1), normaliser, true));
  }
  return {at::stack(outputs, 2), now};
}

LinearOutput linear_attention_causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& log_gate, const at::Tensor& written, const LinearSums& sums,
                                     const LinearNormaliser& normaliser) {
  const int64_t time = q.size(2), width = v.size(3), chunk = std::min(time, kLinearChunk),
                chunks = (time + chunk - 1) / chunk;
  // Contiguous now, since every product with strided heads would copy them again.
  const auto cut = [&](const at::Tensor& x) { return into_chunks(x, chunks, chunk).contiguous(); };
  // v gets an additional column of ones: its sums are those of the weights.
  const at::Tensor qs = cut(q),
                   vs = into_chunks(at::constant_pad_nd(v, {0, 1}, 1.0), chunks, chunk);  // [B,H,N,C,f], [B,H,N,C,d+1]
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
  // The sums before each chunk, [B,H,N,f,d+1]; they depend only on earlier chunks, bit for bit.
  const at::Tensor own = at::matmul(ks.transpose(-1, -2), vs);
  at::Tensor now = at::cat({sums.s, sums.z.unsqueeze(-1)}, -1);
  std::vector<at::Tensor> before;
  for (const at::Tensor& of_chunk : own.unbind(2)) {
    before.push_back(now);
    now = (kept.defined() ? now * kept.select(2, static_cast<int64_t>(before.size()) - 1) : now) + of_chunk;
  }
  const at::Tensor both = at::matmul(scores, vs) +
                          at::matmul(from_past.defined() ? qs * from_past : qs, at::stack(before, 2));
  const at::Tensor o = normalised(both.narrow(-1, 0, width), both.select(-1, width), normaliser, true).flatten(2, 3);
  return {o.size(2) == time ? o : o.narrow(2, 0, time),
          {now.narrow(-1, 0, width).contiguous(), now.select(-1, width).contiguous()}};
}

at::Tensor linear_attention_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const LinearNormaliser& normaliser) {
  const at::Tensor s = at::matmul(k.transpose(-1, -2), v), z = k.sum(2).unsqueeze(-1);  // [B,H,f,d], [B,H,f,1]
  return normalised(at::matmul(q, s), at::matmul(q, z).squeeze(-1), normaliser, false);
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
