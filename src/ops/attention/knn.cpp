#include "ops/attention/knn.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>

namespace mnemo::ops {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// Scores of rows first .. first + count, -inf if there is no row: [B,H,Q,count].
at::Tensor block_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t first,
                        int64_t count) {
  at::Tensor scores = at::matmul(q, k.narrow(2, first, count).transpose(-1, -2));
  if (!valid.defined()) return scores;
  const at::Tensor missing = valid.narrow(1, first, count).logical_not().view({valid.size(0), 1, 1, count});
  return scores.masked_fill(missing, kLowest);
}

/// The indices of the `count` largest values along the last dimension, in ascending order; the first among equal
/// values.
at::Tensor largest(const at::Tensor& scores, int64_t count) {
  auto [values, places] = at::topk(scores, count, -1, true, false);
  // topk picks any of several equal scores. If the lowest score picked also occurs among those left out, sort instead.
  const at::Tensor lowest = values.amin(-1, true);
  const at::Tensor left_out = (scores == lowest).sum(-1) > (values == lowest).sum(-1);
  if (left_out.logical_and(lowest.squeeze(-1) > kLowest).any().item<bool>()) {
    places = std::get<1>(scores.sort(/*stable=*/true, -1, /*descending=*/true)).narrow(-1, 0, count);
  }
  return std::get<0>(places.sort(-1));
}

/// softmax over the last dimension where `real`, 0 elsewhere; all zeros if nothing is real.
at::Tensor masked_softmax(const at::Tensor& scores, const at::Tensor& real) {
  const at::Tensor hidden = real.logical_not().logical_and(real.any(-1, true));
  return at::softmax(scores.masked_fill(hidden, kLowest), -1) * real;
}

/// rows [B,H,M,d] at index [B,H,Q,K] -> [B,H,Q,K,d].
at::Tensor gather_rows(const at::Tensor& rows, const at::Tensor& index) {
  const int64_t length = rows.size(2), d = rows.size(3), sequences = rows.size(0) * rows.size(1);
  const at::Tensor first = at::arange(0, sequences * length, length, index.options()).view({sequences, 1});
  const at::Tensor flat = (index.flatten(0, 1).flatten(1) + first).flatten();
  std::vector<int64_t> shape = index.sizes().vec();
  shape.push_back(d);
  return rows.reshape({sequences * length, d}).index_select(0, flat).view(shape);
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& selected) {
  const at::Tensor real = selected >= 0, index = selected.clamp_min(0);
  const at::Tensor scores = at::matmul(gather_rows(k, index), q.unsqueeze(-1)).squeeze(-1);
  return at::matmul(masked_softmax(scores, real).unsqueeze(-2), gather_rows(v, index)).squeeze(-2);
}

}  // namespace

at::Tensor knn_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k,
                      int64_t max_scores) {
  const at::NoGradGuard no_grad;
  const int64_t rows = k.size(2), queries = std::max<int64_t>(q.size(0) * q.size(1) * q.size(2), 1);
  const int64_t block = std::max(top_k, max_scores / queries);
  at::Tensor best, numbers;  // [B,H,Q,K], in the order of the rows
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t count = std::min(block, rows - first);
    at::Tensor scores = block_scores(q, k, valid, first, count);
    at::Tensor of = at::arange(first, first + count, q.options().dtype(at::kLong)).expand(scores.sizes());
    if (best.defined()) {
      scores = at::cat({best, scores}, -1);
      of = at::cat({numbers, of}, -1);
    }
    if (const int64_t kept = std::min(top_k, scores.size(-1)); kept < scores.size(-1)) {
      const at::Tensor places = largest(scores, kept);
      best = scores.gather(-1, places);
      numbers = of.gather(-1, places);
    } else {
      best = scores;
      numbers = of;
    }
  }
  return numbers.masked_fill(best == kLowest, -1);
}

at::Tensor knn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                         int64_t top_k) {
  if (k.size(2) == 0) return at::zeros_like(q);
  return attend(q, k, v, knn_select(q, k, valid, top_k));
}

at::Tensor knn_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                               int64_t top_k) {
  if (k.size(2) == 0) return at::zeros_like(q);
  return at::matmul(knn_weights(q, k, valid, top_k), v);
}

at::Tensor knn_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k) {
  const at::Tensor scores = block_scores(q, k, valid, 0, k.size(2));
  if (k.size(2) == 0) return scores;
  const at::Tensor rank = std::get<1>(
      std::get<1>(scores.detach().sort(/*stable=*/true, -1, /*descending=*/true)).sort(-1));
  return masked_softmax(scores, at::logical_and(rank<top_k, scores.detach()> kLowest));
}

}  // namespace mnemo::ops
