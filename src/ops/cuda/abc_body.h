#pragma once

#include "ops/cuda/kernel.h"

namespace mnemo::ops::cuda {

/// ABC's exp form (ops/abc/abc_scan.h) on a device: one block per head, tokens in chunks of kAbcTokens.
///
/// The sum of a slot's weights is kept as a pair, z = m + log l, where m is the largest logit so far: at logits of 1e4,
/// a float z alone has an error of 5e-4. With the pair, every weight is at most 1, however far apart the logits are:
///   w_tij = e^{s_ij - m_tj} / l_tj  (token i in slot j as token t reads it, i <= t),   u_tj = e^{m0_j - m_tj} l0_j /
///   l_tj  (the earlier content)
///   y = tril(a) w + u r,  a = scale q k^T,  r = scale q K0^T;   p = softmax over slots;   o = b v + (p u) V0,  b_ti =
///   sum_j p_tj w_tij
///   K1_j = u_Cj K0_j + sum_i w_Cij k_i, likewise V
inline constexpr int kAbcTokens = 16, kAbcMostSlots = 64;
/// Number of chunks between two memories that are kept for the backward pass.
inline constexpr int kAbcChunksKept = 4;

template <class S>
struct AbcInputs {
  using A = Wide<S>;
  int64_t batch, heads, time;
  int slots, width, value_width;
  Rows<const S> q, k, v, s;
  A scale;

  int64_t blocks() const { return batch * heads; }
  MNEMO_BODY int64_t kept() const { return (time + kAbcChunksKept * kAbcTokens - 1) / (kAbcChunksKept * kAbcTokens); }
};

/// Memories one after another: k [n,d], v [n,dv], m and l [n] each.
template <class T>
struct AbcMemoryOf {
  T *k = nullptr, *v = nullptr, *m = nullptr, *l = nullptr;
};

/// The data of a chunk that both directions keep in shared memory.
template <class S>
struct AbcChunk {
  using A = Wide<S>;
  const AbcInputs<S>& in;
  int n, nn, dk, dv;
  A *q, *k, *v, *a, *b, *s, *m, *il, *u, *y, *p, *last, *m0, *l0, *part;

  MNEMO_BODY AbcChunk(const AbcInputs<S>& inputs, Carver<A>& carver)
      : in(inputs), n(inputs.slots), nn(odd(inputs.slots)), dk(odd(inputs.width)), dv(odd(inputs.value_width)) {
    q = carver.take(kAbcTokens * dk), k = carver.take(kAbcTokens * dk), v = carver.take(kAbcTokens * dv);
    a = carver.take(kAbcTokens * kAbcTokens), b = carver.take(kAbcTokens * kAbcTokens);
    s = carver.take(kAbcTokens * nn), m = carver.take(kAbcTokens * nn), il = carver.take(kAbcTokens * nn),
    u = carver.take(kAbcTokens * nn);
    y = carver.take(kAbcTokens * nn), p = carver.take(kAbcTokens * nn), last = carver.take(kAbcTokens * nn);
    m0 = carver.take(n), l0 = carver.take(n), part = carver.take(2 * kThreads);
  }

  MNEMO_BODY void load(int thread, int64_t b_, int64_t h, int64_t begin, int count) const {
    load_rows(thread, q, count, in.width, [&](int t) { return in.q.row(b_, h, begin + t); });
    load_rows(thread, k, count, in.width, [&](int t) { return in.k.row(b_, h, begin + t); });
    load_rows(thread, v, count, in.value_width, [&](int t) { return in.v.row(b_, h, begin + t); });
    load_rows(thread, s, count, n, [&](int t) { return in.s.row(b_, h, begin + t); });
  }
  /// The pair (m, l) of each slot after each token, one thread per slot; (m0, l0) become those after the chunk.
  MNEMO_BODY void run(int j, int count) const {
    if (j >= n) return;
    A high = m0[j], sum = l0[j];
    for (int t = 0; t < count; ++t) {
      const A logit = s[t * nn + j];
      if (logit > high) {
        sum = sum * std::exp(high - logit) + A(1);
        high = logit;
      } else if (logit != -kInfinity<A>) {
        sum += std::exp(logit - high);
      }
      m[t * nn + j] = high == -kInfinity<A> ? A(0) : high;
      il[t * nn + j] = sum == A(0) ? A(0) : A(1) / sum;
      u[t * nn + j] = l0[j] == A(0) ? A(0) : std::exp(m0[j] - high) * l0[j] * il[t * nn + j];
    }
    m0[j] = high, l0[j] = sum;
  }
  MNEMO_BODY A weight(int t, int i, int j) const { return std::exp(s[i * nn + j] - m[t * nn + j]) * il[t * nn + j]; }
  /// a = scale q k^T; zeros above the diagonal.
  MNEMO_BODY void scores(int thread, int count) const {
    products<A, 2>(
        thread, count, count, in.width, [&](int t, int e) { return q[t * dk + e]; },
        [&](int, int e, int i) { return k[i * dk + e]; },
        [&](int t, int i, A sum) { a[t * kAbcTokens + i] = i <= t ? sum * in.scale : A(0); });
  }
  /// Loads the keys and values of memory `number` of `from` into shared memory.
  template <class T>
  MNEMO_BODY void load_memory(int thread, const AbcMemoryOf<T>& from, int64_t number, A* keys, A* values) const {
    load_rows(thread, keys, n, in.width, [&](int j) { return from.k + (number * n + j) * in.width; });
    load_rows(thread, values, n, in.value_width, [&](int j) { return from.v + (number * n + j) * in.value_width; });
    load_sums(thread, from, number);
  }
  template <class T>
  MNEMO_BODY void load_sums(int thread, const AbcMemoryOf<T>& from, int64_t number) const {
    if (thread < n) m0[thread] = from.m[number * n + thread], l0[thread] = from.l[number * n + thread];
  }
  MNEMO_BODY void store_rows(int thread, A* to_k, A* to_v, int64_t number, const A* keys, const A* values) const {
    for (int j = thread / kLanes; j < n; j += kGroups) {
      for (int e = thread % kLanes; e < in.width; e += kLanes) to_k[(number * n + j) * in.width + e] = keys[j * dk + e];
      for (int e = thread % kLanes; e < in.value_width; e += kLanes)
        to_v[(number * n + j) * in.value_width + e] = values[j * dv + e];
    }
  }
  MNEMO_BODY void store_memory(int thread, const AbcMemoryOf<A>& to, int64_t number, const A* keys,
                               const A* values) const {
    store_rows(thread, to.k, to.v, number, keys, values);
    if (thread < n) to.m[number * n + thread] = m0[thread], to.l[number * n + thread] = l0[thread];
  }
  /// Keys and values after the chunk, in place.
  MNEMO_BODY void advance(int thread, int count, A* keys, A* values) const {
    const A* kept = u + (count - 1) * nn;
    products<A, 4>(
        thread, n, in.width, count, [&](int j, int i) { return last[i * nn + j]; },
        [&](int, int i, int e) { return k[i * dk + e]; },
        [&](int j, int e, A sum) { keys[j * dk + e] = kept[j] * keys[j * dk + e] + sum; });
    products<A, 4>(
        thread, n, in.value_width, count, [&](int j, int i) { return last[i * nn + j]; },
        [&](int, int i, int e) { return v[i * dv + e]; },
        [&](int j, int e, A sum) { values[j * dv + e] = kept[j] * values[j * dv + e] + sum; });
  }
  /// last_ij = w_Cij: the weight of token i in the memory after the chunk.
  MNEMO_BODY void weights_of_last(int thread, int count) const {
    for (int i = thread / kLanes; i < count; i += kGroups) {
      for (int j = thread % kLanes; j < n; j += kLanes) last[i * nn + j] = weight(count - 1, i, j);
    }
  }

  // The softmax over slots, p from y: kParts threads per token, whose sums are in `part`.
  static constexpr int kParts = kThreads / kAbcTokens;
  template <class F>
  MNEMO_BODY void each_slot(int thread, int count, F f) const {
    if (thread / kParts >= count) return;
    for (int j = thread % kParts; j < n; j += kParts) f(thread / kParts, j);
  }
  MNEMO_BODY A total(int thread, const A* parts) const {
    A sum = 0;
    for (int i = 0; i < kParts; ++i) sum += parts[thread / kParts * kParts + i];
    return sum;
  }
  MNEMO_BODY void largest(int thread, int count) const {
    A high = -kInfinity<A>;
    each_slot(thread, count, [&](int t, int j) { high = y[t * nn + j] > high ? y[t * nn + j] : high; });
    part[thread] = high;
  }
  MNEMO_BODY void exponentials(int thread, int count) const {
    A high = -kInfinity<A>, sum = 0;
    for (int i = 0; i < kParts; ++i) {
      const A other = part[thread / kParts * kParts + i];
      high = other > high ? other : high;
    }
    each_slot(thread, count, [&](int t, int j) { sum += p[t * nn + j] = std::exp(y[t * nn + j] - high); });
    part[kThreads + thread] = sum;
  }
  MNEMO_BODY void normalise(int thread, int count) const {
    const A inverse = A(1) / total(thread, part + kThreads);
    each_slot(thread, count, [&](int t, int j) { p[t * nn + j] *= inverse; });
  }
};

/// Outputs, the memory after the last token, and, if `path` is given, the memory before every kAbcChunksKept chunks.
template <class S>
struct AbcForward {
  using A = Wide<S>;
  AbcInputs<S> in;
  AbcMemoryOf<const A> before;  ///< [B,H,..]; l null: all 1, so that m is z
  Rows<S> o;
  A *k1, *v1, *z1;
  AbcMemoryOf<A> path;  ///< [B,H,kept,..], or null

  int64_t blocks() const { return in.blocks(); }
  int64_t shared_bytes() const {
    Carver<A> carver{nullptr};
    const AbcChunk<S> chunk(in, carver);
    carver.take(in.slots * (chunk.dk + chunk.dv));
    return carver.used * static_cast<int64_t>(sizeof(A));
  }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    const int64_t head = block.index, b = head / in.heads, h = head % in.heads;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const AbcChunk<S> x(in, carver);
    const int n = x.n, nn = x.nn, dk = x.dk, dv = x.dv;
    A *keys = carver.take(n * dk), *values = carver.take(n * dv);
    block.each([&](int thread) {
      load_rows(thread, keys, n, in.width, [&](int j) { return before.k + (head * n + j) * in.width; });
      load_rows(thread, values, n, in.value_width, [&](int j) { return before.v + (head * n + j) * in.value_width; });
      if (thread < n) {
        const int64_t at = head * n + thread;
        x.m0[thread] = before.m[at];
        x.l0[thread] = before.m[at] == -kInfinity<A> ? A(0) : before.l == nullptr ? A(1) : before.l[at];
      }
    });
    for (int64_t begin = 0; begin < in.time; begin += kAbcTokens) {
      const int count = least(kAbcTokens, in.time - begin);
      block.each([&](int thread) {
        x.load(thread, b, h, begin, count);
        if (path.k != nullptr && begin % (kAbcChunksKept * kAbcTokens) == 0) {
          x.store_memory(thread, path, head * in.kept() + begin / (kAbcChunksKept * kAbcTokens), keys, values);
        }
      });
      block.each([&](int thread) {
        x.run(thread, count);
        x.scores(thread, count);
      });
      block.each([&](int thread) {
        products<A, 2>(
            thread, count, n, in.width, [&](int t, int e) { return x.q[t * dk + e]; },
            [&](int, int e, int j) { return keys[j * dk + e]; },
            [&](int t, int j, A sum) {
              A y = x.u[t * nn + j] * sum * in.scale;
              for (int i = 0; i <= t; ++i) y += x.a[t * kAbcTokens + i] * x.weight(t, i, j);
              x.y[t * nn + j] = y;
            });
        x.weights_of_last(thread, count);
      });
      block.each([&](int thread) { x.largest(thread, count); });
      block.each([&](int thread) { x.exponentials(thread, count); });
      block.each([&](int thread) { x.normalise(thread, count); });
      block.each([&](int thread) {
        const int t = thread / kAbcTokens, i = thread % kAbcTokens;
        if (t >= count || i >= count) return;
        A sum = 0;
        for (int j = 0; i <= t && j < n; ++j) sum += x.p[t * nn + j] * x.weight(t, i, j);
        x.b[t * kAbcTokens + i] = sum;
      });
      block.each([&](int thread) {
        products<A, 2>(
            thread, count, in.value_width, n, [&](int t, int j) { return x.p[t * nn + j] * x.u[t * nn + j]; },
            [&](int, int j, int e) { return values[j * dv + e]; },
            [&](int t, int e, A sum) {
              for (int i = 0; i <= t; ++i) sum += x.b[t * kAbcTokens + i] * x.v[i * dv + e];
              o.row(b, h, begin + t)[e] = static_cast<S>(sum);
            });
      });
      block.each([&](int thread) { x.advance(thread, count, keys, values); });
    }
    block.each([&](int thread) {
      x.store_rows(thread, k1, v1, head, keys, values);
      if (thread < n)
        z1[head * n + thread] = x.l0[thread] == A(0) ? -kInfinity<A> : x.m0[thread] + std::log(x.l0[thread]);
    });
  }
};

/// One token without a graph: reads and writes the memory once.
template <class S>
struct AbcStep {
  using A = Wide<S>;
  AbcInputs<S> in;  ///< time = 1
  const A *k0, *v0, *z0;
  Rows<S> o;
  A *k1, *v1, *z1;

  int64_t blocks() const { return in.blocks(); }
  int64_t shared_bytes() const { return (5 * in.slots + in.slots * odd(kLanes)) * static_cast<int64_t>(sizeof(A)); }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    const int64_t head = block.index, b = head / in.heads, h = head % in.heads;
    const int n = in.slots, lanes = odd(kLanes);
    Carver<A> carver{static_cast<A*>(block.shared)};
    A *keep = carver.take(n), *write = carver.take(n), *score = carver.take(n), *weight = carver.take(n),
      *p = carver.take(n), *part = carver.take(n * lanes);
    block.each([&](int thread) {
      if (thread >= n) return;
      const A z = z0[head * n + thread], s = static_cast<A>(in.s.row(b, h, 0)[thread]), high = s > z ? s : z;
      const bool empty = high == -kInfinity<A>;
      const A before = empty ? A(0) : std::exp(z - high), fresh = empty ? A(0) : std::exp(s - high),
              sum = before + fresh;
      keep[thread] = empty ? A(0) : before / sum, write[thread] = empty ? A(0) : fresh / sum;
      z1[head * n + thread] = empty ? high : high + std::log(sum);
    });
    block.each([&](int thread) {
      const S *q = in.q.row(b, h, 0), *k = in.k.row(b, h, 0);
      for (int j = thread / kLanes; j < n; j += kGroups) {
        const int64_t row = (head * n + j) * in.width;
        A sum = 0;
        for (int e = thread % kLanes; e < in.width; e += kLanes) {
          const A now = k1[row + e] = keep[j] * k0[row + e] + write[j] * static_cast<A>(k[e]);
          sum += now * static_cast<A>(q[e]);
        }
        part[j * lanes + thread % kLanes] = sum;
      }
    });
    block.each([&](int thread) {
      if (thread >= n) return;
      A sum = 0;
      for (int i = 0; i < kLanes; ++i) sum += part[thread * lanes + i];
      score[thread] = sum * in.scale;
    });
    block.each([&](int thread) {
      if (thread >= n) return;
      A high = -kInfinity<A>;
      for (int j = 0; j < n; ++j) high = score[j] > high ? score[j] : high;
      weight[thread] = std::exp(score[thread] - high);
    });
    block.each([&](int thread) {
      if (thread >= n) return;
      A sum = 0;
      for (int j = 0; j < n; ++j) sum += weight[j];
      p[thread] = weight[thread] / sum;
    });
    block.each([&](int thread) {
      const S* v = in.v.row(b, h, 0);
      for (int e = thread; e < in.value_width; e += kThreads) {
        A sum = 0;
        for (int j = 0; j < n; ++j) {
          const int64_t at = (head * n + j) * in.value_width + e;
          const A now = v1[at] = keep[j] * v0[at] + write[j] * static_cast<A>(v[e]);
          sum += p[j] * now;
        }
        o.row(b, h, 0)[e] = static_cast<S>(sum);
      }
    });
  }
};

}  // namespace mnemo::ops::cuda
