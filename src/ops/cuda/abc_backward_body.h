#pragma once

#include "ops/cuda/abc_body.h"

namespace mnemo::ops::cuda {

/// The reverse scan. grad_k, grad_v and grad_z hold the gradient of the memory after the last token and become that of
/// the first, in place. With f_ij = gK_j . k_i + gV_j . v_i and x = grad_o V0^T, c = grad_o v^T:
///   gp_tj = sum_i w_tij c_ti + u_tj x_tj,   gy = p (gp - sum p gp),   H = p gp + gy y,   F_j = sum_i f_ij w_Cij + f0_j
///   u_Cj
///   gs_ij = sum_{t>=i} w_tij (p_tj c_ti + gy_tj a_ti - H_tj) + w_Cij (f_ij - F_j + gz_j), and the same with u, x, r,
///   f0 for z0
template <class S>
struct AbcBackward {
  using A = Wide<S>;
  AbcInputs<S> in;
  AbcMemoryOf<const A> path;
  AbcMemoryOf<A> pieces;  ///< [B,H,kAbcChunksKept,..]: buffer for the memories between two that were kept
  Rows<const S> grad_o;
  Rows<S> grad_q, grad_k, grad_v, grad_s;
  A *grad_memory_k, *grad_memory_v, *grad_memory_z;

  struct Areas {
    A *go, *c, *ga, *r, *x, *gp, *f, *f0, *total_f, *gz, *state, *grad;
    MNEMO_BODY Areas(const AbcChunk<S>& chunk, Carver<A>& carver) {
      const int wide = chunk.dk > chunk.dv ? chunk.dk : chunk.dv;
      go = carver.take(kAbcTokens * chunk.dv), c = carver.take(kAbcTokens * kAbcTokens),
      ga = carver.take(kAbcTokens * kAbcTokens);
      r = carver.take(kAbcTokens * chunk.nn), x = carver.take(kAbcTokens * chunk.nn),
      gp = carver.take(kAbcTokens * chunk.nn);
      f = carver.take(kAbcTokens * chunk.nn), f0 = carver.take(chunk.n), total_f = carver.take(chunk.n),
      gz = carver.take(chunk.n);
      state = carver.take(chunk.n * wide), grad = carver.take(chunk.n * wide);
    }
  };

  int64_t blocks() const { return in.blocks(); }
  int64_t shared_bytes() const {
    Carver<A> carver{nullptr};
    const AbcChunk<S> chunk(in, carver);
    const Areas areas(chunk, carver);
    return carver.used * static_cast<int64_t>(sizeof(A));
  }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    const int64_t head = block.index, b = head / in.heads, h = head % in.heads;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const AbcChunk<S> x(in, carver);
    const Areas g(x, carver);
    const int n = x.n;
    block.each([&](int thread) {
      if (thread < n) g.gz[thread] = grad_memory_z[head * n + thread];
    });
    for (int64_t step = in.kept() - 1; step >= 0; --step) {
      const int64_t first = step * kAbcChunksKept * kAbcTokens;
      const int chunks = least(kAbcChunksKept, (in.time - first + kAbcTokens - 1) / kAbcTokens);
      block.each([&](int thread) { x.load_memory(thread, path, head * in.kept() + step, g.state, g.grad); });
      for (int piece = 0; piece < chunks; ++piece) {
        block.each([&](int thread) {
          x.store_memory(thread, pieces, head * kAbcChunksKept + piece, g.state, g.grad);
          if (piece + 1 < chunks) x.load(thread, b, h, first + piece * kAbcTokens, kAbcTokens);
        });
        if (piece + 1 == chunks) break;
        block.each([&](int thread) { x.run(thread, kAbcTokens); });
        block.each([&](int thread) { x.weights_of_last(thread, kAbcTokens); });
        block.each([&](int thread) { x.advance(thread, kAbcTokens, g.state, g.grad); });
      }
      for (int piece = chunks - 1; piece >= 0; --piece)
        this->chunk(block, x, g, b, h, first + piece * kAbcTokens, piece);
    }
    block.each([&](int thread) {
      if (thread < n) grad_memory_z[head * n + thread] = g.gz[thread];
    });
  }

 private:
  /// Where a chunk stands: its head, its first token, and how many it has.
  struct Span {
    int64_t b, h, begin, place;  ///< place: of the memory before it, in `pieces`
    int count;
    A *own_k, *own_v;  ///< this head's gradient of the memory
  };

  /// One chunk, given the memory before it: pieces[piece] of this head.
  template <class Block>
  MNEMO_BODY void chunk(Block& block, const AbcChunk<S>& x, const Areas& g, int64_t b, int64_t h, int64_t begin,
                        int piece) const {
    const int64_t head = b * in.heads + h;
    const Span at{b,
                  h,
                  begin,
                  head * kAbcChunksKept + piece,
                  least(kAbcTokens, in.time - begin),
                  grad_memory_k + head * x.n * in.width,
                  grad_memory_v + head * x.n * in.value_width};
    this->products_of(block, x, g, at);
    this->slot_gradients(block, x, g, at);
    this->row_gradients(block, x, g, at);
  }

  MNEMO_BODY void load_keys(int thread, const AbcChunk<S>& x, const Areas& g, const Span& at) const {
    load_rows(thread, g.state, x.n, in.width, [&](int j) { return pieces.k + (at.place * x.n + j) * in.width; });
    load_rows(thread, g.grad, x.n, in.width, [&](int j) { return at.own_k + j * in.width; });
  }

  /// c, r, x, f and f0: products of grad_o, queries, keys and values with the memory and its gradient.
  template <class Block>
  MNEMO_BODY void products_of(Block& block, const AbcChunk<S>& x, const Areas& g, const Span& at) const {
    const int n = x.n, nn = x.nn, dk = x.dk, dv = x.dv, count = at.count;
    block.each([&](int thread) {
      x.load(thread, at.b, at.h, at.begin, count);
      load_rows(thread, g.go, count, in.value_width, [&](int t) { return grad_o.row(at.b, at.h, at.begin + t); });
      x.load_sums(thread, pieces, at.place);
      this->load_keys(thread, x, g, at);
    });
    block.each([&](int thread) {
      x.run(thread, count);
      x.scores(thread, count);
      products<A, 2>(
          thread, count, count, in.value_width, [&](int t, int e) { return g.go[t * dv + e]; },
          [&](int, int e, int i) { return x.v[i * dv + e]; },
          [&](int t, int i, A sum) { g.c[t * kAbcTokens + i] = sum; });
      products<A, 2>(
          thread, count, n, in.width, [&](int t, int e) { return x.q[t * dk + e]; },
          [&](int, int e, int j) { return g.state[j * dk + e]; },
          [&](int t, int j, A sum) { g.r[t * nn + j] = sum * in.scale; });
      products<A, 2>(
          thread, count, n, in.width, [&](int i, int e) { return x.k[i * dk + e]; },
          [&](int, int e, int j) { return g.grad[j * dk + e]; }, [&](int i, int j, A sum) { g.f[i * nn + j] = sum; });
      this->row_products(thread, n, in.width, g.grad, g.state, [&](int j, A sum) { g.f0[j] = sum; });
    });
    block.each([&](int thread) {
      load_rows(thread, g.state, n, in.value_width,
                [&](int j) { return pieces.v + (at.place * n + j) * in.value_width; });
      load_rows(thread, g.grad, n, in.value_width, [&](int j) { return at.own_v + j * in.value_width; });
    });
    block.each([&](int thread) {
      products<A, 2>(
          thread, count, n, in.value_width, [&](int t, int e) { return g.go[t * dv + e]; },
          [&](int, int e, int j) { return g.state[j * dv + e]; }, [&](int t, int j, A sum) { g.x[t * nn + j] = sum; });
      products<A, 2>(
          thread, count, n, in.value_width, [&](int i, int e) { return x.v[i * dv + e]; },
          [&](int, int e, int j) { return g.grad[j * dv + e]; }, [&](int i, int j, A sum) { g.f[i * nn + j] += sum; });
      this->row_products(thread, n, in.value_width, g.grad, g.state, [&](int j, A sum) { g.f0[j] += sum; });
      x.weights_of_last(thread, count);
    });
  }

  /// p, gy and H of every slot; F of the memory.
  template <class Block>
  MNEMO_BODY void slot_gradients(Block& block, const AbcChunk<S>& x, const Areas& g, const Span& at) const {
    const int n = x.n, nn = x.nn, count = at.count;
    const A* u_last = x.u + (count - 1) * nn;
    block.each([&](int thread) {
      x.each_slot(thread, count, [&](int t, int j) {
        A y = x.u[t * nn + j] * g.r[t * nn + j], gp = x.u[t * nn + j] * g.x[t * nn + j];
        for (int i = 0; i <= t; ++i) {
          const A w = x.weight(t, i, j);
          y += x.a[t * kAbcTokens + i] * w;
          gp += g.c[t * kAbcTokens + i] * w;
        }
        x.y[t * nn + j] = y, g.gp[t * nn + j] = gp;
      });
      if (thread < n) {
        A sum = g.f0[thread] * u_last[thread];
        for (int i = 0; i < count; ++i) sum += g.f[i * nn + thread] * x.last[i * nn + thread];
        g.total_f[thread] = sum;
      }
    });
    block.each([&](int thread) { x.largest(thread, count); });
    block.each([&](int thread) { x.exponentials(thread, count); });
    block.each([&](int thread) {
      x.normalise(thread, count);
      A mean = 0;
      x.each_slot(thread, count, [&](int t, int j) { mean += x.p[t * nn + j] * g.gp[t * nn + j]; });
      x.part[thread] = mean;
    });
    block.each([&](int thread) {
      const A mean = x.total(thread, x.part);
      x.each_slot(thread, count, [&](int t, int j) {
        const A p = x.p[t * nn + j], gp = g.gp[t * nn + j], gy = p * (gp - mean);
        x.y[t * nn + j] = p * gp + gy * x.y[t * nn + j];  // H from here on
        g.gp[t * nn + j] = gy;
      });
    });
  }

  /// Gradients of queries, keys, values, logits and of the memory before the chunk.
  template <class Block>
  MNEMO_BODY void row_gradients(Block& block, const AbcChunk<S>& x, const Areas& g, const Span& at) const {
    const int n = x.n, nn = x.nn, dk = x.dk, dv = x.dv, count = at.count;
    const A *u_last = x.u + (count - 1) * nn, *gy = g.gp, *big_h = x.y;
    block.each([&](int thread) {
      const int t = thread / kAbcTokens, i = thread % kAbcTokens;
      if (t >= count || i >= count) return;
      A sum_b = 0, sum_a = 0;
      for (int j = 0; i <= t && j < n; ++j) {
        const A w = x.weight(t, i, j);
        sum_b += x.p[t * nn + j] * w;
        sum_a += gy[t * nn + j] * w;
      }
      x.b[t * kAbcTokens + i] = sum_b, g.ga[t * kAbcTokens + i] = sum_a;
    });
    block.each([&](int thread) {
      x.each_slot(thread, count, [&](int i, int j) {
        A sum = x.last[i * nn + j] * (g.f[i * nn + j] - g.total_f[j] + g.gz[j]);
        for (int t = i; t < count; ++t) {
          sum += x.weight(t, i, j) * (x.p[t * nn + j] * g.c[t * kAbcTokens + i] +
                                      gy[t * nn + j] * x.a[t * kAbcTokens + i] - big_h[t * nn + j]);
        }
        grad_s.row(at.b, at.h, at.begin + i)[j] = static_cast<S>(sum);
      });
      // For the values: from `state` and `grad` as they are now.
      products<A, 2>(
          thread, count, in.value_width, n, [&](int i, int j) { return x.last[i * nn + j]; },
          [&](int, int j, int e) { return g.grad[j * dv + e]; },
          [&](int i, int e, A sum) {
            for (int t = i; t < count; ++t) sum += x.b[t * kAbcTokens + i] * g.go[t * dv + e];
            grad_v.row(at.b, at.h, at.begin + i)[e] = static_cast<S>(sum);
          });
      products<A, 4>(
          thread, n, in.value_width, count, [&](int j, int t) { return x.p[t * nn + j] * x.u[t * nn + j]; },
          [&](int, int t, int e) { return g.go[t * dv + e]; },
          [&](int j, int e, A sum) { at.own_v[j * in.value_width + e] = u_last[j] * g.grad[j * dv + e] + sum; });
    });
    block.each([&](int thread) {
      if (thread < n) {
        const int j = thread;
        A sum = u_last[j] * (g.f0[j] - g.total_f[j] + g.gz[j]);
        for (int t = 0; t < count; ++t) {
          const int k = t * nn + j;
          sum += x.u[k] * (x.p[k] * g.x[k] + gy[k] * g.r[k] - big_h[k]);
        }
        g.gz[j] = sum;
      }
      this->load_keys(thread, x, g, at);
    });
    block.each([&](int thread) {
      products<A, 2>(
          thread, count, in.width, n, [&](int t, int j) { return gy[t * nn + j] * x.u[t * nn + j]; },
          [&](int, int j, int e) { return g.state[j * dk + e]; },
          [&](int t, int e, A sum) {
            for (int i = 0; i <= t; ++i) sum += g.ga[t * kAbcTokens + i] * x.k[i * dk + e];
            grad_q.row(at.b, at.h, at.begin + t)[e] = static_cast<S>(sum * in.scale);
          });
      products<A, 2>(
          thread, count, in.width, n, [&](int i, int j) { return x.last[i * nn + j]; },
          [&](int, int j, int e) { return g.grad[j * dk + e]; },
          [&](int i, int e, A sum) {
            A inside = 0;
            for (int t = i; t < count; ++t) inside += g.ga[t * kAbcTokens + i] * x.q[t * dk + e];
            grad_k.row(at.b, at.h, at.begin + i)[e] = static_cast<S>(sum + inside * in.scale);
          });
      products<A, 4>(
          thread, n, in.width, count, [&](int j, int t) { return gy[t * nn + j] * x.u[t * nn + j]; },
          [&](int, int t, int e) { return x.q[t * dk + e]; },
          [&](int j, int e, A sum) { at.own_k[j * in.width + e] = u_last[j] * g.grad[j * dk + e] + sum * in.scale; });
    });
  }
  /// to(j, row j of a . row j of b)
  template <class To>
  MNEMO_BODY void row_products(int thread, int rows, int width, const A* a, const A* b, To to) const {
    if (thread >= rows) return;
    A sum = 0;
    for (int e = 0; e < width; ++e) sum += a[thread * odd(width) + e] * b[thread * odd(width) + e];
    to(thread, sum);
  }
};

}  // namespace mnemo::ops::cuda
