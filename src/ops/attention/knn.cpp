#include "ops/attention/knn.h"

#include <torch/types.h>

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "ops/attention/heads.h"
#include "ops/linear/gemm.h"
#include "ops/linear/products.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kQueries = 64, kRows = 512;  // of a block of scores
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

/// The inputs of knn_attention(), named as there.
template <class T>
struct KnnProblem {
  int64_t batch, heads, queries, rows, width, value_width, top_k;
  Heads<const T> q, k, v;
  const bool* valid = nullptr;  ///< [B,M]; null: all are rows
};

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

/// o [B,H,Q,dv]; and of the K = top_k rows of each query, in their order, the numbers and weights [B,H,Q,K], -1 and 0
/// behind the last. Null: not wanted.
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

/// Gradients of knn_forward(). That of q is set, those of k and v are added to existing values, null: not
/// wanted.
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

template <class T>
KnnProblem<T> problem_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                         int64_t top_k) {
  return {q.size(0),
          q.size(1),
          q.size(2),
          k.size(2),
          q.size(3),
          v.size(3),
          top_k,
          heads_of<const T>(q),
          heads_of<const T>(k),
          heads_of<const T>(v),
          valid.defined() ? valid.const_data_ptr<bool>() : nullptr};
}

/// knn_attention() on the CPU; numbers and weights of the chosen rows, [B,H,Q,K], are kept for the backward pass.
struct KnnFunction : torch::autograd::Function<KnnFunction> {
  using Optional = std::optional<at::Tensor>;

  static at::Tensor run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                        int64_t top_k, at::Tensor* numbers, at::Tensor* weights) {
    at::Tensor o = empty_heads(q, q.size(2), v.size(3));
    if (numbers != nullptr) {
      *weights = at::empty({q.size(0), q.size(1), q.size(2), top_k}, q.options());
      *numbers = at::empty(weights->sizes(), q.options().dtype(at::kLong));
    }
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "knn_forward", [&] {
      knn_forward<scalar_t>(problem_of<scalar_t>(q, k, v, valid, top_k), heads_of<scalar_t>(o),
                            numbers == nullptr ? nullptr : numbers->mutable_data_ptr<int64_t>(),
                            numbers == nullptr ? nullptr : weights->mutable_data_ptr<scalar_t>());
    });
    return o;
  }

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Optional& valid, int64_t top_k) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor numbers, weights;
    at::Tensor o = run(q, k, v, valid.value_or(at::Tensor()), top_k, &numbers, &weights);
    ctx->save_for_backward({q, k, v, numbers, weights});
    return o;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const torch::autograd::variable_list s = ctx->get_saved_variables();
    const at::Tensor &q = s[0], &k = s[1], &v = s[2], &numbers = s[3], &weights = s[4], grad_o = with_rows(grads[0]);
    const at::Tensor grad_q = empty_heads(q, q.size(2), q.size(3)),
                     grad_k = ctx->needs_input_grad(1) ? at::zeros(k.sizes(), k.options()) : at::Tensor(),
                     grad_v = ctx->needs_input_grad(2) ? at::zeros(v.sizes(), v.options()) : at::Tensor();
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "knn_backward", [&] {
      knn_backward<scalar_t>(problem_of<scalar_t>(q, k, v, {}, numbers.size(3)), heads_of<const scalar_t>(grad_o),
                             numbers.const_data_ptr<int64_t>(), weights.const_data_ptr<scalar_t>(),
                             heads_of<scalar_t>(grad_q), heads_of<scalar_t>(grad_k), heads_of<scalar_t>(grad_v));
    });
    return {grad_q, grad_k, grad_v, at::Tensor(), at::Tensor()};
  }
};

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
  if (!q.is_cpu()) return knn_attention_composed(q, k, v, valid, top_k);
  if (q.scalar_type() == at::kBFloat16)
    return knn_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), valid, top_k).to(at::kBFloat16);
  const int64_t kept = std::min(top_k, k.size(2));
  const DeclaredProducts products("mnemo::knn_attention", [&] {
    return q.size(0) * q.size(1) * q.size(2) * (k.size(2) * q.size(3) + kept * v.size(3));
  });
  const at::Tensor rows_q = with_rows(q), rows_k = with_rows(k), rows_v = with_rows(v);
  const at::Tensor real = valid.defined() ? valid.contiguous() : valid;
  if (!at::GradMode::is_enabled()) return KnnFunction::run(rows_q, rows_k, rows_v, real, kept, nullptr, nullptr);
  return KnnFunction::apply(rows_q, rows_k, rows_v, real.defined() ? std::optional(real) : std::nullopt, kept);
}

at::Tensor knn_attention_composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& valid, int64_t top_k, int64_t max_scores) {
  const at::Tensor selected = knn_select(q, k, valid, top_k, max_scores);
  const at::Tensor real = selected >= 0, index = selected.clamp_min(0);
  const at::Tensor scores = at::matmul(gather_rows(k, index), q.unsqueeze(-1)).squeeze(-1);
  return at::matmul(masked_softmax(scores, real).unsqueeze(-2), gather_rows(v, index)).squeeze(-2);
}

at::Tensor knn_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k) {
  const at::Tensor scores = block_scores(q, k, valid, 0, k.size(2));
  if (k.size(2) == 0) return scores;
  const at::Tensor rank = std::get<1>(
      std::get<1>(scores.detach().sort(/*stable=*/true, -1, /*descending=*/true)).sort(-1));
  return masked_softmax(scores, at::logical_and(rank<top_k, scores.detach()> kLowest));
}

}  // namespace mnemo::ops
