#include "ops/abc/abc_chunks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/linear/gemm.h"
#include "ops/row_kernels.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

/// How far apart logits of one chunk may be: e to this power and its inverse are normal numbers, as are their products.
template <class T>
constexpr T kSpread = sizeof(T) == sizeof(float) ? T{40} : T{300};

template <class T>
struct HeadMemory {
  T *k, *v, *z;  // [n,d] [n,dv] [n]
};

/// Some tokens of one head, as matrix products. m_j is a reference for slot j that depends only on the past, so that no
/// output depends on later tokens, not even in its last bit:
///   E_ij = e^{s_ij - m_j},  E0_j = e^{z0_j - m_j},  L_tj = E0_j + sum_{i<=t} E_ij,  D = 1 / L   (e^{z_t} = e^m L_t)
///   scores = D . (tril(scale q k^T) E + E0 . scale q K0^T),   P = softmax over slots,   o = tril((P.D) E^T) v +
///   (P.D.E0) V0
///   K1 = D_last . (E0 . K0 + E^T k)
/// A token whose logit is too far above the reference starts the next chunk.
template <class T>
class Chunk {
 public:
  static int64_t scratch_size(const AbcProblem<T>& p) {
    auto padded = Scratch<T>::padded;
    return 3 * padded(kAbcChunk * kAbcChunk) + 10 * padded(kAbcChunk * p.slots) + 4 * padded(p.slots) +
           2 * padded(p.slots * p.width) + 2 * padded(p.slots * p.value_width);
  }
  Chunk(const AbcProblem<T>& p, Scratch<T>& scratch) : p_(p), n_(p.slots) {
    for (T** square : {&a_, &outer_, &square_}) *square = scratch.take(kAbcChunk * kAbcChunk);
    for (T** rows : {&e_, &d_, &y_, &r_, &prob_, &weight_, &x_, &grad_e_, &grad_d_, &grad_})
      *rows = scratch.take(kAbcChunk * n_);
    for (T** row : {&e0_, &m_, &grad_e0_, &sum_}) *row = scratch.take(n_);
    for (T** area : {&next_k_, &scaled_k_}) *area = scratch.take(n_ * p.width);
    for (T** area : {&next_v_, &scaled_v_}) *area = scratch.take(n_ * p.value_width);
  }

  /// Takes tokens from `begin`, at most up to `end`; returns how many.
  int64_t take(int64_t b, int64_t h, int64_t begin, int64_t end, const T* z0) {
    batch_ = b, head_ = h, begin_ = begin;
    const T* first = p_.s.row(b, h, begin);
    bool some_empty = false;
    for (int64_t j = 0; j < n_; ++j) {
      m_[j] = z0[j] > first[j] ? z0[j] : first[j];
      if (m_[j] == -kInfinity<T>) m_[j] = 0, some_empty = true;
    }
    exp_of_difference(z0, m_, e0_, n_);
    std::copy(e0_, e0_ + n_, sum_);
    for (count_ = 0; begin + count_ < end; ++count_) {
      const T* s = p_.s.row(b, h, begin + count_);
      T *e = e_ + count_ * n_, *d = d_ + count_ * n_;
      const T high = exp_of_difference(s, m_, e, n_);
      if (count_ > 0 && (high > kSpread<T> || (some_empty && first_write_is_low(s)))) break;
      accumulate(sum_, e, n_);
      for (int64_t j = 0; j < n_; ++j) d[j] = sum_[j] == T(0) ? T(0) : T(1) / sum_[j];
    }
    return count_;
  }

  /// Probabilities of all slots, given the memory before the chunk.
  void read(const HeadMemory<const T>& memory) {
    const Matrix<T> q = {p_.q.row(batch_, head_, begin_), p_.q.row_stride}, e = {e_, n_};
    gemm<T>(count_, count_, p_.width, p_.scale, q, transpose(p_.k.row(batch_, head_, begin_), p_.k.row_stride), T(0),
            a_, count_);
    clear_future(a_);
    gemm<T>(count_, n_, count_, T(1), {a_, count_}, e, T(0), y_, n_);
    gemm<T>(count_, n_, p_.width, p_.scale, q, transpose(memory.k, p_.width), T(0), r_, n_);
    for (int64_t t = 0; t < count_; ++t) {
      const T* d = d_ + t * n_;
      T *y = y_ + t * n_, *prob = prob_ + t * n_;
      add_product(r_ + t * n_, e0_, y, n_);
      product(y, d, prob, n_);
      const T high = add_then_max<T>(prob, nullptr, n_);
      const T sum = exp_then_sum(prob, n_, high == -kInfinity<T> ? T(0) : high);
      multiply(prob, n_, T(1) / sum);
      product(prob, d, weight_ + t * n_, n_);
    }
    gemm<T>(count_, count_, n_, T(1), {weight_, n_}, transpose(e_, n_), T(0), outer_, count_);
    clear_future(outer_);
  }

  void write_output(const HeadMemory<const T>& memory, const Heads<T>& o) {
    const Matrix<T> v = {p_.v.row(batch_, head_, begin_), p_.v.row_stride};
    T* out = o.row(batch_, head_, begin_);
    gemm<T>(count_, p_.value_width, count_, T(1), {outer_, count_}, v, T(0), out, o.row_stride);
    for (int64_t t = 0; t < count_; ++t) product(weight_ + t * n_, e0_, x_ + t * n_, n_);
    gemm<T>(count_, p_.value_width, n_, T(1), {x_, n_}, {memory.v, p_.value_width}, T(1), out, o.row_stride);
  }

  /// The memory after the chunk, in place.
  void advance(const HeadMemory<T>& memory) {
    absorb(memory.k, p_.width, p_.k, memory.k);
    absorb(memory.v, p_.value_width, p_.v, memory.v);
    const T* d = last_d();
    for (int64_t j = 0; j < n_; ++j) {
      multiply(memory.k + j * p_.width, p_.width, d[j]);
      multiply(memory.v + j * p_.value_width, p_.value_width, d[j]);
      memory.z[j] = sum_[j] == T(0) ? -kInfinity<T> : m_[j] + std::log(sum_[j]);
    }
  }

  /// Turns the gradient of the memory after the chunk (and of the outputs) into that of the memory before it.
  void backward(const HeadMemory<const T>& before, const AbcGradients<T>& g, const HeadMemory<T>& grad) {
    const int64_t c = count_, dv = p_.value_width, dk = p_.width;
    const Matrix<T> q = {p_.q.row(batch_, head_, begin_), p_.q.row_stride},
                    k = {p_.k.row(batch_, head_, begin_), p_.k.row_stride};
    const Matrix<T> v = {p_.v.row(batch_, head_, begin_), p_.v.row_stride}, e = {e_, n_};
    const Matrix<T> grad_o = {g.o.row(batch_, head_, begin_), g.o.row_stride};
    T *grad_q = g.q.row(batch_, head_, begin_), *grad_k = g.k.row(batch_, head_, begin_),
      *grad_v = g.v.row(batch_, head_, begin_);

    // The memory after the chunk: D_last . (E0 . K0 + E^T k), and likewise V.
    absorb(before.k, dk, p_.k, next_k_);
    absorb(before.v, dv, p_.v, next_v_);
    std::fill(grad_d_, grad_d_ + c * n_, T(0));
    T* grad_last = grad_d_ + (c - 1) * n_;
    for (int64_t j = 0; j < n_; ++j) {
      grad_last[j] = inner_product(grad.k + j * dk, next_k_ + j * dk, dk) +
                     inner_product(grad.v + j * dv, next_v_ + j * dv, dv);
      std::copy(grad.k + j * dk, grad.k + (j + 1) * dk, scaled_k_ + j * dk);
      std::copy(grad.v + j * dv, grad.v + (j + 1) * dv, scaled_v_ + j * dv);
      multiply(scaled_k_ + j * dk, dk, last_d()[j]);
      multiply(scaled_v_ + j * dv, dv, last_d()[j]);
      grad_e0_[j] = inner_product(scaled_k_ + j * dk, before.k + j * dk, dk) +
                    inner_product(scaled_v_ + j * dv, before.v + j * dv, dv);
    }
    gemm<T>(c, n_, dk, T(1), k, transpose(scaled_k_, dk), T(0), grad_e_, n_);
    gemm<T>(c, n_, dv, T(1), v, transpose(scaled_v_, dv), T(1), grad_e_, n_);
    gemm<T>(c, dk, n_, T(1), e, {scaled_k_, dk}, T(0), grad_k, g.k.row_stride);
    gemm<T>(c, dv, n_, T(1), e, {scaled_v_, dv}, T(0), grad_v, g.v.row_stride);

    // o = tril(weight E^T) v + (weight . E0) V0, weight = P . D.
    gemm<T>(c, dv, c, T(1), {outer_, c, true}, grad_o, T(1), grad_v, g.v.row_stride);
    gemm<T>(c, c, dv, T(1), grad_o, transpose(v.data, v.stride), T(0), square_, c);
    clear_future(square_);
    gemm<T>(c, n_, dv, T(1), grad_o, transpose(before.v, dv), T(0), x_, n_);
    gemm<T>(c, n_, c, T(1), {square_, c}, e, T(0), grad_, n_);
    gemm<T>(c, n_, c, T(1), transpose<T>(square_, c), {weight_, n_}, T(1), grad_e_, n_);
    for (int64_t t = 0; t < c; ++t) {
      const T *prob = prob_ + t * n_, *d = d_ + t * n_;
      T *grad_row = grad_ + t * n_, *x = x_ + t * n_;
      add_product(x, e0_, grad_row, n_);  // gradient of weight
      add_product(weight_ + t * n_, x, grad_e0_, n_);
      add_product(grad_row, prob, grad_d_ + t * n_, n_);
      product(grad_row, d, grad_row, n_);  // gradient of P
      softmax_grad(prob, grad_row, n_, inner_product(prob, grad_row, n_), T(1));
      add_product(grad_row, y_ + t * n_, grad_d_ + t * n_, n_);
      product(grad_row, d, grad_row, n_);  // gradient of y = tril(a) E + E0 . r
      add_product(grad_row, r_ + t * n_, grad_e0_, n_);
      product(weight_ + t * n_, e0_, x, n_);  // the factor of V0
    }
    gemm<T>(c, n_, c, T(1), transpose<T>(a_, c), {grad_, n_}, T(1), grad_e_, n_);
    gemm<T>(c, c, n_, T(1), {grad_, n_}, transpose(e_, n_), T(0), square_, c);
    clear_future(square_);
    for (int64_t j = 0; j < n_; ++j) {
      T *row_k = grad.k + j * dk, *row_v = grad.v + j * dv;
      std::copy(scaled_k_ + j * dk, scaled_k_ + (j + 1) * dk, row_k);
      std::copy(scaled_v_ + j * dv, scaled_v_ + (j + 1) * dv, row_v);
      multiply(row_k, dk, e0_[j]);
      multiply(row_v, dv, e0_[j]);
    }
    gemm<T>(n_, dv, c, T(1), transpose<T>(x_, n_), grad_o, T(1), grad.v, dv);
    for (int64_t t = 0; t < c; ++t) product(grad_ + t * n_, e0_, r_ + t * n_, n_);  // gradient of r
    gemm<T>(c, dk, c, p_.scale, {square_, c}, k, T(0), grad_q, g.q.row_stride);
    gemm<T>(c, dk, n_, p_.scale, {r_, n_}, {before.k, dk}, T(1), grad_q, g.q.row_stride);
    gemm<T>(c, dk, c, p_.scale, transpose<T>(square_, c), q, T(1), grad_k, g.k.row_stride);
    gemm<T>(n_, dk, c, p_.scale, transpose<T>(r_, n_), q, T(1), grad.k, dk);

    // D = 1 / L, where L is a running sum of E starting with E0; z after the chunk is m + log L_last. m itself cancels
    // out.
    T* carry = sum_;
    for (int64_t j = 0; j < n_; ++j) carry[j] = grad.z[j] * last_d()[j];
    for (int64_t t = c - 1; t >= 0; --t) {
      const T* d = d_ + t * n_;
      for (int64_t j = 0; j < n_; ++j) carry[j] -= grad_d_[t * n_ + j] * d[j] * d[j];
      accumulate(grad_e_ + t * n_, carry, n_);
      product(grad_e_ + t * n_, e_ + t * n_, g.s.row(batch_, head_, begin_ + t), n_);
    }
    accumulate(grad_e0_, carry, n_);
    product(grad_e0_, e0_, grad.z, n_);
  }

 private:
  const T* last_d() const { return d_ + (count_ - 1) * n_; }
  bool first_write_is_low(const T* s) const {
    for (int64_t j = 0; j < n_; ++j) {
      if (sum_[j] == T(0) && s[j] != -kInfinity<T> && s[j] < -kSpread<T>) return true;
    }
    return false;
  }
  /// Zeros above the diagonal.
  void clear_future(T* square) const {
    for (int64_t t = 0; t < count_; ++t) std::fill(square + t * count_ + t + 1, square + (t + 1) * count_, T(0));
  }
  /// to = E0 . memory + E^T rows
  void absorb(const T* memory, int64_t width, const Heads<const T>& rows, T* to) {
    if (to != memory) std::copy(memory, memory + n_ * width, to);
    for (int64_t j = 0; j < n_; ++j) multiply(to + j * width, width, e0_[j]);
    gemm<T>(n_, width, count_, T(1), transpose<T>(e_, n_), {rows.row(batch_, head_, begin_), rows.row_stride}, T(1), to,
            width);
  }

  const AbcProblem<T>& p_;
  int64_t n_, batch_ = 0, head_ = 0, begin_ = 0, count_ = 0;
  T *a_, *outer_, *square_;                                                 // [C,C]
  T *e_, *d_, *y_, *r_, *prob_, *weight_, *x_, *grad_e_, *grad_d_, *grad_;  // [C,n]
  T *e0_, *m_, *grad_e0_, *sum_;                                            // [n]
  T *next_k_, *scaled_k_, *next_v_, *scaled_v_;                             // [n,d] [n,dv]
};

template <class T>
HeadMemory<T> of_head(const AbcMemories<T>& all, const AbcProblem<std::remove_const_t<T>>& p, int64_t index) {
  return {all.k + index * p.slots * p.width, all.v + index * p.slots * p.value_width, all.z + index * p.slots};
}

template <class T>
HeadMemory<const T> read_only(const HeadMemory<T>& memory) {
  return {memory.k, memory.v, memory.z};
}

template <class T>
void copy(const HeadMemory<const T>& from, const HeadMemory<T>& to, const AbcProblem<T>& p) {
  std::copy(from.k, from.k + p.slots * p.width, to.k);
  std::copy(from.v, from.v + p.slots * p.value_width, to.v);
  std::copy(from.z, from.z + p.slots, to.z);
}

}  // namespace

template <class T>
void abc_forward(const AbcProblem<T>& p, const Heads<T>& o, const AbcMemories<T>& memory, const AbcMemories<T>& path) {
  const int64_t steps = (p.time + kAbcChunk - 1) / kAbcChunk;
  parallel_products(0, p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch<T> scratch(Chunk<T>::scratch_size(p));
    Chunk<T> chunk(p, scratch);
    for (int64_t head = begin; head < end; ++head) {
      const HeadMemory<T> held = of_head(memory, p, head);
      for (int64_t t = 0; t < p.time;) {
        if (path.k != nullptr && t % kAbcChunk == 0)
          copy(read_only(held), of_head(path, p, head * steps + t / kAbcChunk), p);
        const int64_t stop = std::min(p.time, (t / kAbcChunk + 1) * kAbcChunk);
        t += chunk.take(head / p.heads, head % p.heads, t, stop, held.z);
        chunk.read(read_only(held));
        chunk.write_output(read_only(held), o);
        chunk.advance(held);
      }
    }
  });
}

template <class T>
void abc_backward(const AbcProblem<T>& p, const AbcMemories<const T>& path, const AbcGradients<T>& g) {
  const int64_t steps = (p.time + kAbcChunk - 1) / kAbcChunk;
  parallel_products(0, p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Scratch<T> scratch(Chunk<T>::scratch_size(p));
    Chunk<T> chunk(p, scratch);
    // If a chunk had to be cut (logits far apart), the memories before its pieces are needed again.
    const int64_t area = p.slots * (p.width + p.value_width + 1);
    std::vector<T> pieces;
    std::vector<int64_t> starts;
    auto piece = [&](size_t i) {
      T* at = pieces.data() + static_cast<int64_t>(i) * area;
      return HeadMemory<T>{at, at + p.slots * p.width, at + p.slots * (p.width + p.value_width)};
    };
    for (int64_t head = begin; head < end; ++head) {
      const int64_t b = head / p.heads, h = head % p.heads;
      for (int64_t step = steps - 1; step >= 0; --step) {
        const int64_t stop = std::min(p.time, (step + 1) * kAbcChunk);
        starts.clear();
        for (int64_t t = step * kAbcChunk; t < stop;) {
          const size_t i = starts.size();
          starts.push_back(t);
          if (pieces.size() < (i + 1) * static_cast<size_t>(area)) pieces.resize((i + 1) * static_cast<size_t>(area));
          if (i == 0)
            copy(of_head(path, p, head * steps + step), piece(0), p);
          else
            copy(read_only(piece(i - 1)), piece(i), p), chunk.advance(piece(i));
          t += chunk.take(b, h, t, stop, piece(i).z);
        }
        for (size_t i = starts.size(); i-- > 0;) {
          if (i + 1 < starts.size()) chunk.take(b, h, starts[i], starts[i + 1], piece(i).z);
          chunk.read(read_only(piece(i)));
          chunk.backward(read_only(piece(i)), g, of_head(g.memory, p, head));
        }
      }
    }
  });
}

template void abc_forward(const AbcProblem<float>&, const Heads<float>&, const AbcMemories<float>&,
                          const AbcMemories<float>&);
template void abc_forward(const AbcProblem<double>&, const Heads<double>&, const AbcMemories<double>&,
                          const AbcMemories<double>&);
template void abc_backward(const AbcProblem<float>&, const AbcMemories<const float>&, const AbcGradients<float>&);
template void abc_backward(const AbcProblem<double>&, const AbcMemories<const double>&, const AbcGradients<double>&);

}  // namespace mnemo::ops
