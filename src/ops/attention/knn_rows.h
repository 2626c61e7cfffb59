#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/attention/heads.h"
#include "ops/row_kernels.h"

namespace mnemo::ops {

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

/// The inputs of knn_attention() (ops/attention/knn.h), named as there.
template <class T>
struct KnnProblem {
  int64_t batch, heads, queries, rows, width, value_width, top_k;
  Heads<const T> q, k, v;
  const bool* valid = nullptr;  ///< [B,M]; null: all are rows
};

/// o [B,H,Q,dv]; and of the K = top_k rows of each query, in their order, the numbers and weights [B,H,Q,K], -1 and 0
/// behind the last. Null: not wanted.
template <class T>
void knn_forward(const KnnProblem<T>& problem, const Heads<T>& o, int64_t* numbers, T* weights);

/// Gradients of what knn_forward() gave; that of q is set, those of k and v are added to existing values, null: not
/// wanted.
template <class T>
void knn_backward(const KnnProblem<T>& problem, const Heads<const T>& grad_o, const int64_t* numbers, const T* weights,
                  const Heads<T>& grad_q, const Heads<T>& grad_k, const Heads<T>& grad_v);

}  // namespace mnemo::ops
