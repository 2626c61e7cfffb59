#include "ops/attention/knn_rows.h"

#include <limits>

#include "ops/linear/gemm.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kQueries = 64, kRows = 512;  ///< of a block of scores

/// The softmax of the scores of `best`, and their numbers.
template <class T>
int64_t weigh(const std::vector<std::pair<T, int64_t>>& best, int64_t* numbers, T* weights) {
  const auto count = static_cast<int64_t>(best.size());
  for (int64_t j = 0; j < count; ++j) {
    weights[j] = best[static_cast<size_t>(j)].first;
    numbers[j] = best[static_cast<size_t>(j)].second;
  }
  const T sum = exp_then_sum(weights, count, add_then_max<T>(weights, nullptr, count));
  multiply(weights, count, T(1) / sum);
  return count;
}

/// Queries i0 .. of one head of one sequence.
template <class T>
void forward_block(const KnnProblem<T>& p, const Heads<T>& o, int64_t* numbers, T* weights, int64_t b, int64_t h,
                   int64_t i0, std::vector<BestRows<T>>& best) {
  const int64_t count = std::min(kQueries, p.queries - i0), kept = p.top_k;
  Scratch<T> scratch(Scratch<T>::padded(kQueries * kRows) + Scratch<T>::padded(kept));
  T *scores = scratch.take(kQueries * kRows), *own_weights = scratch.take(kept);
  thread_local std::vector<int64_t> own_numbers;
  own_numbers.resize(static_cast<size_t>(kept));
  for (BestRows<T>& of_query : best) of_query.start(kept);
  int64_t real = 0;
  for (int64_t j0 = 0; j0 < p.rows; j0 += kRows) {
    const int64_t rows = std::min(kRows, p.rows - j0);
    gemm<T>(count, rows, p.width, T(1), {p.q.row(b, h, i0), p.q.row_stride},
            transpose(p.k.row(b, h, j0), p.k.row_stride), T(0), scores, rows);
    const bool* valid = p.valid == nullptr ? nullptr : p.valid + b * p.rows + j0;
    const int64_t of_block = valid == nullptr ? rows : std::count(valid, valid + rows, true);
    const bool gaps = of_block < rows;
    real += of_block;
    for (int64_t i = 0; i < count; ++i) {
      T* row = scores + i * rows;
      for (int64_t j = 0; gaps && j < rows; ++j) {
        if (!valid[j]) row[j] = -kInfinity<T>;
      }
      best[static_cast<size_t>(i)].take(row, j0, rows);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = ((b * p.heads + h) * p.queries + i0 + i) * kept;
    int64_t* number = numbers == nullptr ? own_numbers.data() : numbers + at;
    T* weight = weights == nullptr ? own_weights : weights + at;
    const int64_t found = weigh(best[static_cast<size_t>(i)].in_order(), number, weight);
    std::fill(number + found, number + kept, -1);
    std::fill(weight + found, weight + kept, T(0));
    weigh_rows(p.v.row(b, h, 0), p.v.row_stride, number, found, weight, p.value_width, o.row(b, h, i0 + i));
    // Scores that are no numbers: as of a query with a NaN.
    if (found < std::min(kept, real))
      std::fill_n(o.row(b, h, i0 + i), p.value_width, std::numeric_limits<T>::quiet_NaN());
  }
}

}  // namespace

template <class T>
void knn_forward(const KnnProblem<T>& p, const Heads<T>& o, int64_t* numbers, T* weights) {
  const int64_t blocks = (p.queries + kQueries - 1) / kQueries;
  parallel_products(0, p.batch * p.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<BestRows<T>> best(kQueries);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task / blocks;
      forward_block(p, o, numbers, weights, head / p.heads, head % p.heads, task % blocks * kQueries, best);
    }
  });
}

template <class T>
void knn_backward(const KnnProblem<T>& p, const Heads<const T>& grad_o, const int64_t* numbers, const T* weights,
                  const Heads<T>& grad_q, const Heads<T>& grad_k, const Heads<T>& grad_v) {
  // One head at a time: gradients of its rows are sums over queries.
  at::parallel_for(0, p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> memory(static_cast<size_t>(p.top_k + std::max(p.width, p.value_width)));
    T *grad = memory.data(), *scaled = grad + p.top_k;
    const auto add = [&](const Heads<T>& to, int64_t b, int64_t h, int64_t row, const T* x, int64_t width, T factor) {
      sum_rows<T>(x, nullptr, scaled, width);
      multiply(scaled, width, factor);
      accumulate(to.row(b, h, row), scaled, width);
    };
    for (int64_t item = begin * p.queries; item < end * p.queries; ++item) {
      const int64_t b = item / p.queries / p.heads, h = item / p.queries % p.heads, i = item % p.queries;
      const int64_t* number = numbers + item * p.top_k;
      const T *weight = weights + item * p.top_k, *from = grad_o.row(b, h, i);
      const int64_t found = std::find(number, number + p.top_k, -1) - number;
      dot_rows(p.v.row(b, h, 0), p.v.row_stride, number, found, from, p.value_width, grad);
      softmax_grad(weight, grad, found, inner_product(weight, grad, found), T(1));
      weigh_rows(p.k.row(b, h, 0), p.k.row_stride, number, found, grad, p.width, grad_q.row(b, h, i));
      for (int64_t j = 0; j < found; ++j) {
        if (grad_k) add(grad_k, b, h, number[j], p.q.row(b, h, i), p.width, grad[j]);
        if (grad_v) add(grad_v, b, h, number[j], from, p.value_width, weight[j]);
      }
    }
  });
}

#define MNEMO_KNN(T)                                                                                                 \
  template void knn_forward(const KnnProblem<T>&, const Heads<T>&, int64_t*, T*);                                    \
  template void knn_backward(const KnnProblem<T>&, const Heads<const T>&, const int64_t*, const T*, const Heads<T>&, \
                             const Heads<T>&, const Heads<T>&);
MNEMO_KNN(float)
MNEMO_KNN(double)
#undef MNEMO_KNN

}  // namespace mnemo::ops
