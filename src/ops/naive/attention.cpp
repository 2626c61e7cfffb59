#include "ops/naive/attention.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

#include "ops/attention/knn.h"
#include "ops/dropout.h"

namespace mnemo::ops {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                           RelShift shift, const at::Tensor& mask, double scale, double dropout) {
  const at::Tensor weights = attention_weights(q, k, position, shift, mask, scale);
  return at::matmul(dropout > 0.0 ? ops::dropout(weights, dropout) : weights, v);
}

at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                           const KeyRanges& ranges, double scale, double dropout) {
  const auto plus = [&q](const at::Tensor& bias) { return bias.defined() ? q + bias.unsqueeze(1) : q; };
  const at::Tensor position = positions.r.defined() ? at::matmul(plus(positions.v), positions.r.permute({1, 2, 0}))
                                                    : positions.scores;
  return attention_naive(plus(positions.u), k, v, position, position.defined() ? RelShift::signed_ : RelShift::none,
                         ranges.mask(), scale, dropout);
}

at::Tensor task_attention_naive(const at::Tensor& q, const TaskKeys& keys, const std::vector<TaskSight>& sights,
                                double scale) {
  std::vector<at::Tensor> k = {keys.old_k, keys.class_k}, v = {keys.old_v, keys.class_v};
  if (keys.memory_k.defined()) {
    const auto each = [&](const at::Tensor& memory) { return memory.unsqueeze(0).expand({q.size(0), -1, -1, -1}); };
    k.push_back(each(keys.memory_k));
    v.push_back(each(keys.memory_v));
  }
  const at::Tensor mask = task_mask(sights, keys.old_k.size(2), keys.memory_k.defined() ? keys.memory_k.size(1) : 0)
                              .to(q.device());
  return attention_naive(q, at::cat(k, 2), at::cat(v, 2), {}, RelShift::none, mask, scale);
}

LinearOutput linear_attention_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& log_gate, const at::Tensor& written,
                                           const LinearSums& sums, const LinearNormaliser& normaliser,
                                           const TurnedFeatures& turned) {
  const at::Tensor &q_above = turned.q.defined() ? turned.q : q, &k_above = turned.k.defined() ? turned.k : k;
  LinearSums now = sums;
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < q.size(2); ++t) {
    at::Tensor kt = k.select(2, t), above = k_above.select(2, t);  // [B,H,f]
    if (log_gate.defined()) {
      const at::Tensor keep = log_gate.select(2, t).exp().unsqueeze(-1);
      kt = kt * written.select(2, t).unsqueeze(-1);
      above = above * written.select(2, t).unsqueeze(-1);
      now = {now.s * keep.unsqueeze(-1), now.z * keep};
    }
    now = {now.s + above.unsqueeze(-1) * v.select(2, t).unsqueeze(2), now.z + kt};
    outputs.push_back(
        normaliser.divide((q_above.select(2, t).unsqueeze(-1) * now.s).sum(2), (q.select(2, t) * now.z).sum(-1), true));
  }
  return {at::stack(outputs, 2), now};
}

at::Tensor lsh_attention_naive(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& buckets,
                               const at::Tensor& valid, const LshOptions& options) {
  const int64_t batch = qk.size(0), time = qk.size(2);
  const at::Tensor place = at::arange(time, buckets.options());
  const at::Tensor real = valid.defined() ? valid : at::ones({batch, time}, buckets.options().dtype(at::kBool));
  const at::Tensor self = at::eye(time, real.options());
  const at::Tensor both = real.unsqueeze(2).logical_and(real.unsqueeze(1)).unsqueeze(1);
  const at::Tensor norm = qk.norm(2, -1, true), unit = qk / at::where(norm == 0.0, 1.0, norm);
  const at::Tensor plain = at::matmul(qk, unit.transpose(-1, -2)) / std::sqrt(static_cast<double>(qk.size(3)));
  std::vector<at::Tensor> outputs, sums;
  for (int64_t r = 0; r < buckets.size(2); ++r) {
    const at::Tensor bucket = buckets.select(2, r), key = bucket * time + place;  // [B,H,T]
    const at::Tensor rank = (key.unsqueeze(-1) > key.unsqueeze(-2)).sum(-1),
                     chunk = at::floor_divide(rank, options.chunk_len);
    const at::Tensor last = at::floor_divide(real.sum(1) - 1, options.chunk_len).view({batch, 1, 1});
    const at::Tensor previous = at::where(chunk == 0, last, chunk - 1);
    at::Tensor sees = (chunk.unsqueeze(-1) == chunk.unsqueeze(-2))
                          .logical_or(previous.unsqueeze(-1) == chunk.unsqueeze(-2));
    if (!options.attend_across_buckets) sees = sees.logical_and(bucket.unsqueeze(-1) == bucket.unsqueeze(-2));
    if (options.causal) sees = sees.logical_and(place.unsqueeze(-1) >= place);
    const at::Tensor scores = plain.masked_fill(sees.logical_and(both).logical_not(), kNever).masked_fill(self, -1e5);
    const at::Tensor sum = at::logsumexp(scores, {-1}, true);
    outputs.push_back(at::matmul((scores - sum).exp(), v));
    sums.push_back(sum);
  }
  return (at::stack(outputs) * at::softmax(at::stack(sums), 0)).sum(0);
}

at::Tensor lsh_attention_arena_naive(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations,
                                     const LshOptions& options) {
  const int64_t missing = options.chunk_len - qk.size(2) % options.chunk_len;
  const at::Tensor rows = at::constant_pad_nd(qk, {0, 0, 0, missing}),
                   values = at::constant_pad_nd(v, {0, 0, 0, missing});
  const int64_t time = rows.size(2), chunk = time / options.num_buckets;
  const at::Tensor buckets = lsh_buckets(rows, rotations, {}).squeeze(2);
  const at::Tensor key = buckets * time + at::arange(time, buckets.options());
  const at::Tensor number = at::floor_divide((key.unsqueeze(-1) > key.unsqueeze(-2)).sum(-1), chunk);
  const at::Tensor back = (number.unsqueeze(-1) - number.unsqueeze(-2)).remainder(options.num_buckets);
  const at::Tensor scores = at::matmul(rows, rows.transpose(-1, -2)) * std::sqrt(static_cast<double>(qk.size(3)));
  const at::Tensor p = at::softmax(scores.masked_fill(back > 1, kNever), -1);
  return at::matmul(p, values).narrow(2, 0, qk.size(2));
}

at::Tensor rotate_naive(const at::Tensor& x, int64_t first, const std::vector<double>& frequencies) {
  const auto half = static_cast<int64_t>(frequencies.size());
  const auto numbers = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor angles = at::arange(first, first + x.size(2), numbers).unsqueeze(-1) *
                            at::tensor(frequencies, numbers);
  const at::Tensor pairs = at::complex(x.narrow(3, 0, half).to(at::kDouble), x.narrow(3, half, half).to(at::kDouble));
  const at::Tensor turned = pairs * at::polar(at::ones_like(angles), angles);
  return at::cat({at::real(turned).to(x.scalar_type()), at::imag(turned).to(x.scalar_type()),
                  x.narrow(3, 2 * half, x.size(3) - 2 * half)},
                 3);
}

at::Tensor bucket_bias_naive(const at::Tensor& table, const RelativeBuckets& buckets, int64_t queries, int64_t keys) {
  at::Tensor index = at::empty({queries, keys}, at::kLong);
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) index[i][j] = buckets.bucket(i + keys - queries - j);
  }
  return table.t().index_select(1, index.flatten().to(table.device())).unflatten(1, {queries, keys});
}

at::Tensor linformer_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& e,
                           const at::Tensor& f, const at::Tensor& valid, double scale) {
  std::vector<at::Tensor> keys, values;
  for (int64_t n = 0; n < e.size(0); ++n) {
    at::Tensor key = at::zeros_like(k.select(2, 0)), value = at::zeros_like(v.select(2, 0));
    for (int64_t t = 0; t < k.size(2); ++t) {
      const at::Tensor real = valid.defined() ? valid.select(1, t).to(k.scalar_type()).view({-1, 1, 1})
                                              : at::ones({1, 1, 1}, k.options());
      key = key + e[n][t] * real * k.select(2, t);
      value = value + f[n][t] * real * v.select(2, t);
    }
    keys.push_back(key);
    values.push_back(value);
  }
  return attention_naive(q, at::stack(keys, 2), at::stack(values, 2), {}, RelShift::none, {}, scale);
}

at::Tensor knn_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                               int64_t top_k) {
  if (k.size(2) == 0) return at::zeros_like(q);
  return at::matmul(knn_weights(q, k, valid, top_k), v);
}

at::Tensor disentangled_scores_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position_keys,
                                     const at::Tensor& position_queries, const at::Tensor& rows, double scale) {
  const at::Tensor each_q = q.unsqueeze(3), each_k = k.unsqueeze(2);  // [B,H,Q,1,d], [B,H,1,K,d]
  const auto of_pairs = [&](const at::Tensor& table) {                // [H,R,d] -> [H,Q,K,d]
    return table.index_select(1, rows.flatten()).unflatten(1, {rows.size(0), rows.size(1)});
  };
  at::Tensor scores = (each_q * each_k).sum(-1);
  if (position_keys.defined()) scores = scores + (each_q * of_pairs(position_keys)).sum(-1);
  if (position_queries.defined()) scores = scores + (each_k * of_pairs(position_queries)).sum(-1);
  return scores * scale;
}

}  // namespace mnemo::ops
