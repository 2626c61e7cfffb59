#include "ops/abc/abc_sum_chunks.h"

#include <algorithm>

#include "ops/abc/abc_chunks.h"
#include "ops/linear/gemm.h"
#include "ops/row_kernels.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

/// Some tokens of one head, as matrix products; K0, V0 are the sums before them.
///   y = tril(scale q k^T) phi + scale q K0^T,   P = softmax over slots (factor . y + bias),   w = P . factor
///   o = tril(w phi^T) v + w V0,   K1 = K0 + phi^T k
/// Outputs do not depend on later tokens, not even in their last bit: entries above the diagonal are multiplied by
/// zero.
template <class T>
class SumChunk {
 public:
  static int64_t scratch_size(const AbcSumProblem<T>& p) {
    auto padded = Scratch<T>::padded;
    return 3 * padded(kAbcChunk * kAbcChunk) + 4 * padded(kAbcChunk * p.slots);
  }
  SumChunk(const AbcSumProblem<T>& p, Scratch<T>& scratch) : p_(p), n_(p.slots) {
    for (T** square : {&a_, &outer_, &square_}) *square = scratch.take(kAbcChunk * kAbcChunk);
    for (T** rows : {&y_, &prob_, &weight_, &grad_}) *rows = scratch.take(kAbcChunk * n_);
  }

  /// Takes tokens from `begin`, at most kAbcChunk; returns how many.
  int64_t take(int64_t b, int64_t h, int64_t begin) {
    batch_ = b, head_ = h, begin_ = begin, count_ = std::min(kAbcChunk, p_.time - begin);
    return count_;
  }

  /// Probabilities of all slots, given the keys before the chunk.
  void read(const T* before_k) {
    const Matrix<T> q = rows(p_.q), k = rows(p_.k), phi = rows(p_.phi);
    gemm<T>(count_, count_, p_.width, p_.scale, q, transpose(k.data, k.stride), T(0), a_, count_);
    clear_future(a_);
    gemm<T>(count_, n_, p_.width, p_.scale, q, transpose(before_k, p_.width), T(0), y_, n_);
    gemm<T>(count_, n_, count_, T(1), {a_, count_}, phi, T(1), y_, n_);
    for (int64_t t = 0; t < count_; ++t) {
      const T *y = y_ + t * n_, *factor = row(p_.factor, t);
      T* prob = prob_ + t * n_;
      if (factor)
        product(y, factor, prob, n_);
      else
        std::copy(y, y + n_, prob);
      const T high = add_then_max<T>(prob, row(p_.bias, t), n_);
      const T sum = exp_then_sum(prob, n_, high == -kInfinity<T> ? T(0) : high);
      multiply(prob, n_, sum == T(0) ? T(0) : T(1) / sum);
      if (factor) product(prob, factor, weight_ + t * n_, n_);
    }
    gemm<T>(count_, count_, n_, T(1), {weight(), n_}, transpose(phi.data, phi.stride), T(0), outer_, count_);
    clear_future(outer_);
  }

  void write_output(const T* before_v, const Heads<T>& o) {
    T* out = o.row(batch_, head_, begin_);
    gemm<T>(count_, p_.value_width, count_, T(1), {outer_, count_}, rows(p_.v), T(0), out, o.row_stride);
    gemm<T>(count_, p_.value_width, n_, T(1), {weight(), n_}, {before_v, p_.value_width}, T(1), out, o.row_stride);
  }

  /// The sums after the chunk, in place.
  void advance(T* sum_k, T* sum_v) {
    const Matrix<T> phi = rows(p_.phi);
    gemm<T>(n_, p_.width, count_, T(1), transpose(phi.data, phi.stride), rows(p_.k), T(1), sum_k, p_.width);
    gemm<T>(n_, p_.value_width, count_, T(1), transpose(phi.data, phi.stride), rows(p_.v), T(1), sum_v, p_.value_width);
  }

  /// Turns the gradient of the sums after the chunk (and of the outputs) into that of the sums before it, in place.
  void backward(const T* before_k, const T* before_v, const AbcSumGradients<T>& g, T* sum_k, T* sum_v) {
    const int64_t c = count_, dk = p_.width, dv = p_.value_width;
    const Matrix<T> q = rows(p_.q), k = rows(p_.k), v = rows(p_.v), phi = rows(p_.phi);
    const Matrix<T> grad_o = {g.o.row(batch_, head_, begin_), g.o.row_stride};
    T *grad_q = g.q.row(batch_, head_, begin_), *grad_k = g.k.row(batch_, head_, begin_),
      *grad_v = g.v.row(batch_, head_, begin_);
    T* grad_phi = g.phi ? g.phi.row(batch_, head_, begin_) : nullptr;

    // The sums after the chunk: K0 + phi^T k, and likewise V.
    gemm<T>(c, dk, n_, T(1), phi, {sum_k, dk}, T(0), grad_k, g.k.row_stride);
    gemm<T>(c, dv, n_, T(1), phi, {sum_v, dv}, T(0), grad_v, g.v.row_stride);
    if (grad_phi) {
      gemm<T>(c, n_, dk, T(1), k, transpose<T>(sum_k, dk), T(0), grad_phi, g.phi.row_stride);
      gemm<T>(c, n_, dv, T(1), v, transpose<T>(sum_v, dv), T(1), grad_phi, g.phi.row_stride);
    }

    // o = tril(w phi^T) v + w V0.
    gemm<T>(c, dv, c, T(1), transpose<T>(outer_, c), grad_o, T(1), grad_v, g.v.row_stride);
    gemm<T>(c, c, dv, T(1), grad_o, transpose(v.data, v.stride), T(0), square_, c);
    clear_future(square_);
    gemm<T>(c, n_, dv, T(1), grad_o, transpose(before_v, dv), T(0), grad_, n_);
    gemm<T>(c, n_, c, T(1), {square_, c}, phi, T(1), grad_, n_);  // gradient of w
    if (grad_phi) gemm<T>(c, n_, c, T(1), transpose<T>(square_, c), {weight(), n_}, T(1), grad_phi, g.phi.row_stride);
    for (int64_t t = 0; t < c; ++t) {
      const T *prob = prob_ + t * n_, *factor = row(p_.factor, t);
      T *grad = grad_ + t * n_, *grad_factor = g.factor ? g.factor.row(batch_, head_, begin_ + t) : nullptr;
      if (grad_factor) product(grad, prob, grad_factor, n_);
      if (factor) product(grad, factor, grad, n_);
      softmax_grad(prob, grad, n_, inner_product(prob, grad, n_), T(1));
      if (grad_factor) add_product(grad, y_ + t * n_, grad_factor, n_);
      if (factor) product(grad, factor, grad, n_);  // gradient of y
    }
    if (grad_phi) gemm<T>(c, n_, c, T(1), transpose<T>(a_, c), {grad_, n_}, T(1), grad_phi, g.phi.row_stride);
    gemm<T>(c, c, n_, T(1), {grad_, n_}, transpose(phi.data, phi.stride), T(0), square_, c);
    clear_future(square_);
    gemm<T>(n_, dv, c, T(1), transpose<T>(weight(), n_), grad_o, T(1), sum_v, dv);
    gemm<T>(c, dk, c, p_.scale, {square_, c}, k, T(0), grad_q, g.q.row_stride);
    gemm<T>(c, dk, n_, p_.scale, {grad_, n_}, {before_k, dk}, T(1), grad_q, g.q.row_stride);
    gemm<T>(c, dk, c, p_.scale, transpose<T>(square_, c), q, T(1), grad_k, g.k.row_stride);
    gemm<T>(n_, dk, c, p_.scale, transpose<T>(grad_, n_), q, T(1), sum_k, dk);
  }

 private:
  Matrix<T> rows(const Heads<const T>& all) const { return {all.row(batch_, head_, begin_), all.row_stride}; }
  const T* row(const Heads<const T>& all, int64_t t) const {
    return all ? all.row(batch_, head_, begin_ + t) : nullptr;
  }
  T* weight() const { return p_.factor ? weight_ : prob_; }
  /// Zeros above the diagonal.
  void clear_future(T* square) const {
    for (int64_t t = 0; t < count_; ++t) std::fill(square + t * count_ + t + 1, square + (t + 1) * count_, T(0));
  }

  const AbcSumProblem<T>& p_;
  int64_t n_, batch_ = 0, head_ = 0, begin_ = 0, count_ = 0;
  T *a_, *outer_, *square_;         // [C,C]
  T *y_, *prob_, *weight_, *grad_;  // [C,n]
};

}  // namespace

template <class T>
void abc_sums_forward(const AbcSumProblem<T>& p, const Heads<T>& o, const AbcSumRows<T>& sums,
                      const AbcSumRows<T>& path) {
  const int64_t steps = (p.time + kAbcChunk - 1) / kAbcChunk, size_k = p.slots * p.width,
                size_v = p.slots * p.value_width;
  parallel_products(0, p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch<T> scratch(SumChunk<T>::scratch_size(p));
    SumChunk<T> chunk(p, scratch);
    for (int64_t head = begin; head < end; ++head) {
      T *k = sums.k + head * size_k, *v = sums.v + head * size_v;
      for (int64_t step = 0; step < steps; ++step) {
        if (path.k != nullptr) {
          std::copy(k, k + size_k, path.k + (head * steps + step) * size_k);
          std::copy(v, v + size_v, path.v + (head * steps + step) * size_v);
        }
        chunk.take(head / p.heads, head % p.heads, step * kAbcChunk);
        chunk.read(k);
        chunk.write_output(v, o);
        chunk.advance(k, v);
      }
    }
  });
}

template <class T>
void abc_sums_backward(const AbcSumProblem<T>& p, const AbcSumRows<const T>& path, const AbcSumGradients<T>& g) {
  const int64_t steps = (p.time + kAbcChunk - 1) / kAbcChunk, size_k = p.slots * p.width,
                size_v = p.slots * p.value_width;
  parallel_products(0, p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch<T> scratch(SumChunk<T>::scratch_size(p));
    SumChunk<T> chunk(p, scratch);
    for (int64_t head = begin; head < end; ++head) {
      for (int64_t step = steps - 1; step >= 0; --step) {
        const T *before_k = path.k + (head * steps + step) * size_k,
                *before_v = path.v + (head * steps + step) * size_v;
        chunk.take(head / p.heads, head % p.heads, step * kAbcChunk);
        chunk.read(before_k);
        chunk.backward(before_k, before_v, g, g.sums.k + head * size_k, g.sums.v + head * size_v);
      }
    }
  });
}

template void abc_sums_forward(const AbcSumProblem<float>&, const Heads<float>&, const AbcSumRows<float>&,
                               const AbcSumRows<float>&);
template void abc_sums_forward(const AbcSumProblem<double>&, const Heads<double>&, const AbcSumRows<double>&,
                               const AbcSumRows<double>&);
template void abc_sums_backward(const AbcSumProblem<float>&, const AbcSumRows<const float>&,
                                const AbcSumGradients<float>&);
template void abc_sums_backward(const AbcSumProblem<double>&, const AbcSumRows<const double>&,
                                const AbcSumGradients<double>&);

}  // namespace mnemo::ops
