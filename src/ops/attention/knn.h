#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/row_kernels.h"

namespace mnemo::ops {

/// Attention of each query to the keys of a memory with the highest scores (Wu et al. 2022, Memorizing Transformers,
/// section 3.1).
///   s_ij = q_i . K_j
///   N_i  = the top_k real rows j with the largest s_ij, the older row (smaller j) first among equals
///   o_i  = sum over N_i of softmax_{N_i}(s_i)_j V_j
/// B batch, H heads, Q queries, M rows of the memory, d head width.
///   q [B,H,Q,d], already scaled   k, v [B,H,M,d]   valid [B,M] bool, false = no row; undefined = all are rows
/// Returns o [B,H,Q,d], zero for a sequence without rows. The selection of rows is a constant: gradients only reach q
/// and the chosen rows of k and v (first derivatives only).
///
/// Scores are computed in blocks of queries and rows, and each query keeps its best rows so far, so a long memory never
/// needs all of [Q,M] at once. The backward pass reads only the chosen rows.
at::Tensor knn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                         int64_t top_k);

/// knn_attention() from LibTorch's operations, for devices other than the CPU: selects by knn_select(), then gathers.
at::Tensor knn_attention_composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& valid, int64_t top_k, int64_t max_scores = int64_t{1} << 23);

/// The indices j of N_i in ascending order, [B,H,Q,min(top_k, M)] int64; -1 if there are fewer rows.
///   max_scores: number of scores that a block of rows may have; it always has at least top_k per query
at::Tensor knn_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k,
                      int64_t max_scores = int64_t{1} << 23);

/// The weights of N_i as a matrix, [B,H,Q,M]: the weight of each row for each query.
at::Tensor knn_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k);

/// The rows with the highest scores, found in one pass over the scores. Among equal scores the older row wins. NaN is
/// ignored.
template <class T>
class BestRows {
 public:
  /// Starts over; `most` rows will be kept.
  void start(int64_t most) {
    most_ = static_cast<size_t>(most);
    least_ = -kInfinity<T>;
    rows_.clear();
  }
  /// Takes the scores of the rows first .. first + count, where -inf is no row. Rows must come in their order.
  void take(const T* scores, int64_t first, int64_t count) {
    int64_t places[kPiece];
    for (int64_t i = 0; i < count; i += kPiece) {
      const int64_t found = places_above(scores + i, std::min(kPiece, count - i), least_, places);
      for (int64_t j = 0; j < found; ++j) rows_.emplace_back(scores[i + places[j]], first + i + places[j]);
      if (rows_.size() >= 2 * most_ + kPiece) drop();
    }
  }
  /// Score and number of each, by number. The object takes no more before it is started again.
  const std::vector<std::pair<T, int64_t>>& in_order() {
    if (rows_.size() > most_) drop();
    std::sort(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return rows_;
  }

 private:
  static constexpr int64_t kPiece = 64;
  using Row = std::pair<T, int64_t>;  // score, number
  /// Drops all but the best. A later row with the lowest score that is left would lose against it.
  void drop() {
    const auto last = rows_.begin() + static_cast<int64_t>(most_) - 1;
    std::nth_element(rows_.begin(), last, rows_.end(), [](const Row& a, const Row& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
    least_ = last->first;
    rows_.resize(most_);
  }

  size_t most_ = 0;
  T least_ = -kInfinity<T>;
  std::vector<Row> rows_;
};

}  // namespace mnemo::ops
