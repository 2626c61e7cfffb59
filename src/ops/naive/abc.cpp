#include "ops/naive/abc.h"

#include <torch/types.h>

#include <limits>

#include "ops/abc/abc_slots.h"

namespace mnemo::ops {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// exp(a - b), where a = b = -inf (nothing written) gives 0.
at::Tensor exp_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor empty = at::isneginf(b);
  return at::exp(at::where(empty, at::full_like(a, kNothing), a) - b.masked_fill(empty, 0.0));
}

}  // namespace

AbcOutput abc_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                           const AbcMemory& memory, const at::Tensor& valid, AbcActivation activation, double eps,
                           double scale) {
  const bool exp = activation == AbcActivation::exp;
  const at::Tensor a_or_s = exp ? s : activation == AbcActivation::relu ? at::relu(s) : at::sigmoid(s);
  at::Tensor weights = a_or_s;
  if (valid.defined())
    weights = a_or_s.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(-1), exp ? kNothing : 0.0);
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

AbcSumsOutput abc_sums_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                             const AbcSums& sums, const AbcReading& reading, double scale) {
  AbcSums now = sums;
  std::vector<at::Tensor> outputs;
  const auto at_token = [](const at::Tensor& x, int64_t t) { return x.select(2, t); };
  for (int64_t t = 0; t < q.size(2); ++t) {
    const at::Tensor write = phi.select(2, t).unsqueeze(-1);  // [B,H,n,1]
    now = {now.k + write * k.select(2, t).unsqueeze(2), now.v + write * v.select(2, t).unsqueeze(2)};
    const at::Tensor y = at::matmul(now.k, q.select(2, t).unsqueeze(-1)).squeeze(-1) * scale;  // [B,H,n]
    const at::Tensor factor = reading.factor.defined() ? at_token(reading.factor, t) : at::ones({}, y.options());
    at::Tensor scores = factor * y;
    if (reading.open.defined()) scores = scores.masked_fill(at_token(reading.open, t).logical_not(), kNothing);
    outputs.push_back(((at::_safe_softmax(scores, -1) * factor).unsqueeze(-1) * now.v).sum(2));
  }
  return {at::stack(outputs, 2), now};
}

AbcSumsOutput abc_window_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AbcSums& queue,
                               const at::Tensor& open, const std::vector<int64_t>& seen, double scale) {
  const int64_t slots = queue.k.size(2);
  AbcSums now = queue;
  at::Tensor open_now = open.defined()
                            ? open
                            : at::ones({q.size(0), slots}, q.options().dtype(at::kBool).requires_grad(false));
  int64_t written = 0;
  const auto write_until = [&](int64_t keys) {
    for (; written < keys; ++written) {
      const auto push = [&](const at::Tensor& rows, const at::Tensor& all) {
        return at::cat({rows.narrow(2, 1, slots - 1), all.narrow(2, written, 1)}, 2);
      };
      now = {push(now.k, k), push(now.v, v)};
      open_now = at::cat({open_now.narrow(1, 1, slots - 1), at::ones_like(open_now.narrow(1, 0, 1))}, 1);
    }
  };
  std::vector<at::Tensor> outputs;
  for (size_t t = 0; t < seen.size(); ++t) {
    write_until(seen[t]);
    const at::Tensor scores = at::matmul(now.k, q.select(2, static_cast<int64_t>(t)).unsqueeze(-1)).squeeze(-1) *
                              scale;  // [B,H,n]
    const at::Tensor closed = open_now.logical_not().unsqueeze(1);
    const at::Tensor p = at::_safe_softmax(scores.masked_fill(closed, kNothing), -1);
    outputs.push_back((p.unsqueeze(-1) * now.v).sum(2));
  }
  write_until(k.size(2));
  return {at::stack(outputs, 2), now};
}

at::Tensor nearest_means_naive(const at::Tensor& keys, const at::Tensor& sums, const at::Tensor& counts,
                               const at::Tensor& valid) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = sums.clone(), count = counts.clone();
  const double epsilon = keys.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon();
  const at::Tensor numbers = at::arange(sums.size(1), counts.options().dtype(at::kLong).requires_grad(false));
  std::vector<at::Tensor> chosen;
  for (int64_t t = 0; t < keys.size(1); ++t) {
    const at::Tensor key = keys.narrow(1, t, 1);
    const at::Tensor mean = sum / count.clamp_min(1).unsqueeze(-1), distance = (mean - key).square().sum(-1),
                     size = (mean.square().sum(-1) + 2 * (mean * key).sum(-1).abs()) * (kTie * epsilon);
    const at::Tensor nearest = distance.argmin(1, true), most = (distance + size).gather(1, nearest);
    const at::Tensor slot = at::logical_or(count <= 0, at::logical_and((count > 0).all(1, true), distance <= most))
                                .to(at::kByte)
                                .argmax(1);  // the first empty one, or the first of the nearest
    const at::Tensor real = valid.defined() ? valid.select(1, t) : at::ones_like(slot, at::kBool);
    const at::Tensor joins = ((numbers == slot.unsqueeze(1)).logical_and(real.unsqueeze(1))).to(sum.scalar_type());
    sum = sum + joins.unsqueeze(-1) * key;
    count = count + joins;
    chosen.push_back(slot * real);
  }
  return at::stack(chosen, 1);
}

}  // namespace mnemo::ops
