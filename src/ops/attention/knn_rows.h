#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/attention/heads.h"
#include "ops/row_kernels.h"

namespace mnemo::ops {

/// The rows with the highest scores, found in one pass over the scores; the older row wins among equals. A NaN
/// is taken only while there is room.
template <class T>
class BestRows {
 public:
  /// Starts over; `most` rows will be kept.
  void start(int64_t most) {
    most_ = static_cast<size_t>(most);
    heap_.clear();
  }
  /// Takes the scores of the rows first .. first + count, where -inf is no row. Rows must come in their order.
  void take(T* scores, int64_t first, int64_t count) {
    int64_t i = 0;
    for (; i < count && heap_.size() < most_; ++i) {
      if (scores[i] != -kInfinity<T>) push(scores[i], first + i);
    }
    // Most pieces have no score above the lowest one taken, which their largest tells.
    for (int64_t size; i < count; i += size) {
      size = std::min(kPiece, count - i);
      if (!(add_then_max<T>(scores + i, nullptr, size) > heap_.front().first)) continue;
      for (int64_t j = i; j < i + size; ++j) {
        if (!(scores[j] > heap_.front().first)) continue;
        std::pop_heap(heap_.begin(), heap_.end(), better);
        heap_.pop_back();
        push(scores[j], first + j);
      }
    }
  }
  /// Score and number of each, by number. The object takes no more before it is started again.
  const std::vector<std::pair<T, int64_t>>& in_order() {
    std::sort(heap_.begin(), heap_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return heap_;
  }

 private:
  static constexpr int64_t kPiece = 64;
  using Row = std::pair<T, int64_t>;  // score, number
  /// The front of the heap is the row that goes first: the lowest score, and of equal ones the newest row.
  static bool better(const Row& a, const Row& b) { return a.first > b.first || (a.first == b.first && a.second < b.second); }
  void push(T score, int64_t number) {
    heap_.emplace_back(score, number);
    std::push_heap(heap_.begin(), heap_.end(), better);
  }

  size_t most_ = 0;
  std::vector<Row> heap_;
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
