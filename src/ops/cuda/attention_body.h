#pragma once

#include "ops/cuda/kernel.h"

namespace mnemo::ops::cuda {

/// Softmax attention over key ranges with optional relative positions (ops/attention/attention.h) on a device, in tiles
/// of queries and keys. Names are those of attention(). Sums over keys are in the threads' registers; nothing is
/// accumulated across blocks, so two runs give the same bits.
template <class S>
struct AttentionInputs {
  using A = Wide<S>;
  int64_t batch, heads;
  int queries, keys, width, value_width, distances;
  Rows<const S> q, k, v;
  Rows<const S> r;       ///< [P,H,d] as one batch; or null
  const S *u, *v_bias;   ///< [H,d], or null
  Rows<const S> scores;  ///< [B,H,Q,P], in place of r; or null
  const int32_t *offsets, *bounds;
  const bool* valid;  ///< [B,K], or null
  A scale;

  MNEMO_BODY int64_t row_of(int64_t b, int64_t h, int i) const { return (b * heads + h) * queries + i; }
  /// Whether query i sees any key from `begin` to `end` - 1.
  MNEMO_BODY bool sees(int i, int begin, int end) const {
    for (int32_t piece = offsets[i]; piece < offsets[i + 1]; ++piece) {
      if (bounds[2 * piece] < end && bounds[2 * piece + 1] > begin) return true;
    }
    return false;
  }
  MNEMO_BODY bool may_attend(int64_t b, int i, int j) const {
    return sees(i, j, j + 1) && (valid == nullptr || valid[b * keys + j]);
  }
};

/// A square of scores in shared memory. Element (r, c) belongs to query i0 + r and
///   straight: key j0 + c;   slanted: the distance column c0 + c, whatever key that is (gradients of r are sums along
///   slanted lines).
/// Column c of the position scores belongs to the key j = c - (Q-1) + i.
template <class S, bool kSlanted>
struct AttentionTile {
  using A = Wide<S>;
  static constexpr int kSide = sizeof(A) == sizeof(double) ? 16 : 32, kRows = kSide / kGroups,
                       kParts = kThreads / kSide;
  static constexpr int kLine = kSide | 1, kKeyRows = kSlanted ? 2 * kSide - 1 : kSide,
                       kDistanceRows = kSlanted ? kSide : 2 * kSide - 1;
  using Sums = Share<kRows>;

  const AttentionInputs<S>& in;
  int wk, wv;
  A *q, *qp, *k, *v, *r, *s;

  /// Allocates the blocks of memory that the forward pass needs.
  MNEMO_BODY AttentionTile(const AttentionInputs<S>& inputs, Carver<A>& carver)
      : in(inputs), wk(odd(inputs.width)), wv(odd(inputs.value_width)) {
    const bool has_r = in.r.data != nullptr;
    q = carver.take(kSide * wk), k = carver.take(kKeyRows * wk), v = carver.take(kKeyRows * wv),
    s = carver.take(kSide * kLine);
    qp = has_r ? carver.take(kSide * wk) : nullptr;
    r = has_r ? carver.take(kDistanceRows * wk) : nullptr;
  }
  static MNEMO_BODY int key_row(int row, int c) { return kSlanted ? row + c : c; }
  static MNEMO_BODY int distance_row(int row, int c) { return kSlanted ? c : kSide - 1 - row + c; }
  /// `origin` is j0 or c0.
  MNEMO_BODY int key_of(int i0, int origin, int row, int c) const {
    return kSlanted ? origin + c - (in.queries - 1) + i0 + row : origin + c;
  }
  MNEMO_BODY int first_key(int i0, int origin) const { return key_of(i0, origin, 0, 0); }
  MNEMO_BODY int first_distance(int i0, int origin) const {
    return kSlanted ? origin : origin + in.queries - i0 - kSide;
  }

  MNEMO_BODY bool seen(int i0, int origin) const {
    const int last = least(i0 + kSide, in.queries);
    for (int i = last - 1; i >= i0; --i) {
      const int begin = key_of(i0, origin, i - i0, 0);
      if (in.sees(i, begin, begin + kSide)) return true;
    }
    return false;
  }
  MNEMO_BODY void load_queries(int thread, int64_t b, int64_t h, int i0) const {
    for (int row = thread / kLanes; row < kSide; row += kGroups) {
      const bool real = i0 + row < in.queries;
      const S* from = real ? in.q.row(b, h, i0 + row) : nullptr;
      for (int e = thread % kLanes; e < in.width; e += kLanes) {
        const A plain = real ? static_cast<A>(from[e]) : A(0);
        q[row * wk + e] = plain + (in.u != nullptr && real ? static_cast<A>(in.u[h * in.width + e]) : A(0));
        if (qp != nullptr)
          qp[row * wk + e] = plain +
                             (in.v_bias != nullptr && real ? static_cast<A>(in.v_bias[h * in.width + e]) : A(0));
      }
    }
  }
  MNEMO_BODY void load_keys(int thread, int64_t b, int64_t h, int i0, int origin) const {
    const int j0 = first_key(i0, origin);
    auto real = [&](int row) { return j0 + row >= 0 && j0 + row < in.keys; };
    load_rows(thread, k, kKeyRows, in.width, [&](int row) { return real(row) ? in.k.row(b, h, j0 + row) : nullptr; });
    load_rows(thread, v, kKeyRows, in.value_width,
              [&](int row) { return real(row) ? in.v.row(b, h, j0 + row) : nullptr; });
  }
  MNEMO_BODY void load_distances(int thread, int64_t h, int i0, int origin) const {
    if (r == nullptr) return;
    const int p0 = first_distance(i0, origin);
    load_rows(thread, r, kDistanceRows, in.width,
              [&](int row) { return p0 + row >= 0 && p0 + row < in.distances ? in.r.row(0, h, p0 + row) : nullptr; });
  }
  /// f(row, c, i, j, score) for those of this thread's elements that the query may attend to; hidden(row, c) for the
  /// others.
  template <class F, class Hidden>
  MNEMO_BODY void scores(int thread, int64_t b, int64_t h, int i0, int origin, F f, Hidden hidden) const {
    for (int c = thread % kLanes; c < kSide; c += kLanes) {
      for (int row = thread / kLanes; row < kSide; row += kGroups) {
        const int i = i0 + row, j = key_of(i0, origin, row, c);
        if (i >= in.queries || !in.may_attend(b, i, j)) {
          hidden(row, c);
          continue;
        }
        const A* key = k + key_row(row, c) * wk;
        A sum = 0;
        for (int e = 0; e < in.width; ++e) sum += q[row * wk + e] * key[e];
        const int p = j + in.queries - 1 - i;  // a missing distance contributes nothing
        if (r != nullptr) {
          const A* distance = r + distance_row(row, c) * wk;
          for (int e = 0; e < in.width; ++e) sum += qp[row * wk + e] * distance[e];
        } else if (in.scores.data != nullptr && p < in.distances) {
          sum += static_cast<A>(in.scores.row(b, h, i)[p]);
        }
        f(row, c, i, j, sum * in.scale);
      }
    }
  }
};

/// The blocks of a grid over (head of a sequence, tile).
struct TileOf {
  int64_t b, h;
  int first;
  template <class S>
  MNEMO_BODY TileOf(const AttentionInputs<S>& in, int64_t index, int size, int side) {
    const int64_t tiles = (size + side - 1) / side, head = index / tiles;
    b = head / in.heads, h = head % in.heads, first = static_cast<int>(index % tiles) * side;
  }
};

/// o and the log of each softmax's sum, [B,H,Q] (+inf for a query without keys).
template <class S>
struct AttentionForward {
  using A = Wide<S>;
  using Tile = AttentionTile<S, false>;
  AttentionInputs<S> in;
  Rows<S> o;
  A* log_sum;

  struct Areas {
    A *part, *keep, *total;
    MNEMO_BODY explicit Areas(Carver<A>& carver)
        : part(carver.take(kThreads)), keep(carver.take(Tile::kSide)), total(carver.take(Tile::kSide)) {}
  };
  int64_t blocks() const { return in.batch * in.heads * ((in.queries + Tile::kSide - 1) / Tile::kSide); }
  int64_t shared_bytes() const {
    Carver<A> carver{nullptr};
    const Tile tile(in, carver);
    const Areas areas(carver);
    return carver.used * static_cast<int64_t>(sizeof(A));
  }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    constexpr int kSide = Tile::kSide, kParts = Tile::kParts;
    const TileOf at(in, block.index, in.queries, kSide);
    const int64_t b = at.b, h = at.h;
    const int i0 = at.first;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const Tile x(in, carver);
    const Areas areas(carver);
    typename Block::template Kept<A, Tile::Sums::kSize> out;
    typename Block::template Kept<A, 2>
        row_state;  // largest score of the row so far, and this thread's part of the sum
    block.each([&](int thread) {
      x.load_queries(thread, b, h, i0);
      Tile::Sums::each(thread, kMaxWidth, out(thread), [](int, int, A& sum) { sum = 0; });
      row_state(thread)[0] = -kInfinity<A>, row_state(thread)[1] = 0;
    });
    for (int j0 = 0; j0 < in.keys; j0 += kSide) {
      if (!x.seen(i0, j0)) continue;
      block.each([&](int thread) {
        x.load_keys(thread, b, h, i0, j0);
        x.load_distances(thread, h, i0, j0);
      });
      block.each([&](int thread) {
        x.scores(
            thread, b, h, i0, j0, [&](int row, int c, int, int, A score) { x.s[row * Tile::kLine + c] = score; },
            [&](int row, int c) { x.s[row * Tile::kLine + c] = -kInfinity<A>; });
      });
      block.each([&](int thread) {
        A high = -kInfinity<A>;
        for (int c = thread % kParts; c < kSide; c += kParts) {
          const A score = x.s[thread / kParts * Tile::kLine + c];
          high = score > high ? score : high;
        }
        areas.part[thread] = high;
      });
      block.each([&](int thread) {
        const int row = thread / kParts;
        A &most = row_state(thread)[0], &sum = row_state(thread)[1];
        const A before = most;
        for (int i = 0; i < kParts; ++i) {
          const A other = areas.part[row * kParts + i];
          most = other > most ? other : most;
        }
        // Only -inf or NaN so far: a NaN must propagate.
        const A keep = most > before ? std::exp(before - most) : A(1), shift = most == -kInfinity<A> ? A(0) : most;
        sum *= keep;
        for (int c = thread % kParts; c < kSide; c += kParts) {
          A& score = x.s[row * Tile::kLine + c];
          score = std::exp(score - shift);
          sum += score;
        }
        if (thread % kParts == 0) areas.keep[row] = keep;
      });
      block.each([&](int thread) {
        Tile::Sums::each(thread, in.value_width, out(thread), [&](int row, int, A& sum) { sum *= areas.keep[row]; });
        Tile::Sums::add(
            thread, in.value_width, kSide, out(thread), [&](int row, int c) { return x.s[row * Tile::kLine + c]; },
            [&](int, int c, int e) { return x.v[c * x.wv + e]; });
      });
    }
    block.each([&](int thread) { areas.part[thread] = row_state(thread)[1]; });
    block.each([&](int thread) {
      const int row = thread / kParts, i = i0 + row;
      if (thread % kParts != 0 || i >= in.queries) return;
      A sum = 0;
      for (int part = 0; part < kParts; ++part) sum += areas.part[row * kParts + part];
      areas.total[row] = sum;
      log_sum[in.row_of(b, h, i)] = sum == A(0) ? kInfinity<A> : row_state(thread)[0] + std::log(sum);
    });
    block.each([&](int thread) {
      Tile::Sums::each(thread, in.value_width, out(thread), [&](int row, int e, A& sum) {
        if (i0 + row < in.queries)
          o.row(b, h, i0 + row)[e] = static_cast<S>(areas.total[row] == A(0) ? A(0) : sum / areas.total[row]);
      });
    });
  }
};

/// Additional inputs of the backward kernels. mean [B,H,Q]: o . grad_o.
template <class S>
struct AttentionGradient {
  using A = Wide<S>;
  AttentionInputs<S> in;
  Rows<const S> grad_o;
  const A *log_sum, *mean;
};

/// Tiles of the backward pass: p in `s` and the gradient of the scores before scaling in `ds`, with recomputed scores.
template <class S, bool kSlanted>
struct BackwardTile : AttentionTile<S, kSlanted> {
  using A = Wide<S>;
  using Base = AttentionTile<S, kSlanted>;
  const AttentionGradient<S>& g;
  A *go, *ds, *log_sum, *mean;

  MNEMO_BODY BackwardTile(const AttentionGradient<S>& gradient, Carver<A>& carver)
      : Base(gradient.in, carver), g(gradient) {
    go = carver.take(Base::kSide * Base::wv), ds = carver.take(Base::kSide * Base::kLine);
    log_sum = carver.take(Base::kSide), mean = carver.take(Base::kSide);
  }
  MNEMO_BODY void load_queries_and_gradients(int thread, int64_t b, int64_t h, int i0) const {
    this->load_queries(thread, b, h, i0);
    load_rows(thread, go, Base::kSide, g.in.value_width,
              [&](int row) { return i0 + row < g.in.queries ? g.grad_o.row(b, h, i0 + row) : nullptr; });
    if (thread < Base::kSide) {
      const bool real = i0 + thread < g.in.queries;
      log_sum[thread] = real ? g.log_sum[g.in.row_of(b, h, i0 + thread)] : kInfinity<A>;
      mean[thread] = real ? g.mean[g.in.row_of(b, h, i0 + thread)] : A(0);
    }
  }
  /// to(i, j, gradient of the score before scaling)
  template <class To>
  MNEMO_BODY void gradients(int thread, int64_t b, int64_t h, int i0, int origin, To to) const {
    this->scores(
        thread, b, h, i0, origin,
        [&](int row, int c, int i, int j, A score) {
          const A* value = Base::v + Base::key_row(row, c) * Base::wv;
          A sum = 0;
          for (int e = 0; e < g.in.value_width; ++e) sum += go[row * Base::wv + e] * value[e];
          const A p = std::exp(score - log_sum[row]), gradient = p * (sum - mean[row]) * g.in.scale;
          Base::s[row * Base::kLine + c] = p, ds[row * Base::kLine + c] = gradient;
          to(i, j, gradient);
        },
        [&](int row, int c) { Base::s[row * Base::kLine + c] = A(0), ds[row * Base::kLine + c] = A(0); });
  }
};

template <class Tile, class S>
int64_t backward_shared_bytes(const AttentionGradient<S>& g) {
  Carver<Wide<S>> carver{nullptr};
  const Tile tile(g, carver);
  return carver.used * static_cast<int64_t>(sizeof(Wide<S>));
}

/// Gradients by query: the gradient of q through contents and through positions, [B,H,Q,d] each, and that of
/// precomputed scores, whose other elements must be zero before.
template <class S>
struct AttentionBackwardQueries {
  using A = Wide<S>;
  using Tile = BackwardTile<S, false>;
  AttentionGradient<S> g;
  A *by_content, *by_position;  ///< by_position: null without r
  Rows<A> scores;               ///< or null

  int64_t blocks() const { return g.in.batch * g.in.heads * ((g.in.queries + Tile::kSide - 1) / Tile::kSide); }
  int64_t shared_bytes() const { return backward_shared_bytes<Tile>(g); }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    constexpr int kSide = Tile::kSide;
    const AttentionInputs<S>& in = g.in;
    const TileOf at(in, block.index, in.queries, kSide);
    const int64_t b = at.b, h = at.h;
    const int i0 = at.first;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const Tile x(g, carver);
    typename Block::template Kept<A, Tile::Sums::kSize> content, position;
    block.each([&](int thread) {
      x.load_queries_and_gradients(thread, b, h, i0);
      Tile::Sums::each(thread, kMaxWidth, content(thread), [](int, int, A& sum) { sum = 0; });
      Tile::Sums::each(thread, kMaxWidth, position(thread), [](int, int, A& sum) { sum = 0; });
    });
    for (int j0 = 0; j0 < in.keys; j0 += kSide) {
      if (!x.seen(i0, j0)) continue;
      block.each([&](int thread) {
        x.load_keys(thread, b, h, i0, j0);
        x.load_distances(thread, h, i0, j0);
      });
      block.each([&](int thread) {
        x.gradients(thread, b, h, i0, j0, [&](int i, int j, A gradient) {
          const int p = j + in.queries - 1 - i;
          if (scores.data != nullptr && p < in.distances) scores.row(b, h, i)[p] = gradient;
        });
      });
      block.each([&](int thread) {
        Tile::Sums::add(
            thread, in.width, kSide, content(thread), [&](int row, int c) { return x.ds[row * Tile::kLine + c]; },
            [&](int, int c, int e) { return x.k[c * x.wk + e]; });
        if (x.r == nullptr) return;
        Tile::Sums::add(
            thread, in.width, kSide, position(thread), [&](int row, int c) { return x.ds[row * Tile::kLine + c]; },
            [&](int row, int c, int e) { return x.r[Tile::distance_row(row, c) * x.wk + e]; });
      });
    }
    block.each([&](int thread) {
      auto store = [&](A* to, A* sums) {
        Tile::Sums::each(thread, in.width, sums, [&](int row, int e, A& sum) {
          if (i0 + row < in.queries) to[in.row_of(b, h, i0 + row) * in.width + e] = sum;
        });
      };
      store(by_content, content(thread));
      if (by_position != nullptr) store(by_position, position(thread));
    });
  }
};

/// Gradients of keys and values, [B,H,K,d] and [B,H,K,dv].
template <class S>
struct AttentionBackwardKeys {
  using A = Wide<S>;
  using Tile = BackwardTile<S, false>;
  AttentionGradient<S> g;
  A *grad_k, *grad_v;

  int64_t blocks() const { return g.in.batch * g.in.heads * ((g.in.keys + Tile::kSide - 1) / Tile::kSide); }
  int64_t shared_bytes() const { return backward_shared_bytes<Tile>(g); }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    constexpr int kSide = Tile::kSide;
    const AttentionInputs<S>& in = g.in;
    const TileOf at(in, block.index, in.keys, kSide);
    const int64_t b = at.b, h = at.h;
    const int j0 = at.first;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const Tile x(g, carver);
    typename Block::template Kept<A, Tile::Sums::kSize> of_k, of_v;
    block.each([&](int thread) {
      x.load_keys(thread, b, h, 0, j0);
      Tile::Sums::each(thread, kMaxWidth, of_k(thread), [](int, int, A& sum) { sum = 0; });
      Tile::Sums::each(thread, kMaxWidth, of_v(thread), [](int, int, A& sum) { sum = 0; });
    });
    for (int i0 = 0; i0 < in.queries; i0 += kSide) {
      if (!x.seen(i0, j0)) continue;
      block.each([&](int thread) {
        x.load_queries_and_gradients(thread, b, h, i0);
        x.load_distances(thread, h, i0, j0);
      });
      block.each([&](int thread) { x.gradients(thread, b, h, i0, j0, [](int, int, A) {}); });
      block.each([&](int thread) {
        Tile::Sums::add(
            thread, in.width, kSide, of_k(thread), [&](int c, int row) { return x.ds[row * Tile::kLine + c]; },
            [&](int, int row, int e) { return x.q[row * x.wk + e]; });
        Tile::Sums::add(
            thread, in.value_width, kSide, of_v(thread), [&](int c, int row) { return x.s[row * Tile::kLine + c]; },
            [&](int, int row, int e) { return x.go[row * x.wv + e]; });
      });
    }
    block.each([&](int thread) {
      auto store = [&](A* to, A* sums, int width) {
        Tile::Sums::each(thread, width, sums, [&](int c, int e, A& sum) {
          if (j0 + c < in.keys) to[((b * in.heads + h) * in.keys + j0 + c) * width + e] = sum;
        });
      };
      store(grad_k, of_k(thread), in.width);
      store(grad_v, of_v(thread), in.value_width);
    });
  }
};

/// The gradient of r, [P,H,d]: a sum over sequences and queries, by blocks of distances.
template <class S>
struct AttentionBackwardDistances {
  using A = Wide<S>;
  using Tile = BackwardTile<S, true>;
  AttentionGradient<S> g;
  A* grad_r;

  int64_t tiles() const { return (g.in.distances + Tile::kSide - 1) / Tile::kSide; }
  int64_t blocks() const { return g.in.heads * tiles(); }
  int64_t shared_bytes() const { return backward_shared_bytes<Tile>(g); }

  template <class Block>
  MNEMO_BODY void operator()(Block& block) const {
    constexpr int kSide = Tile::kSide;
    const AttentionInputs<S>& in = g.in;
    const TileOf at(in, block.index, in.distances, kSide);
    const int64_t h = at.h;
    const int p0 = at.first;
    Carver<A> carver{static_cast<A*>(block.shared)};
    const Tile x(g, carver);
    typename Block::template Kept<A, Tile::Sums::kSize> sums;
    block.each([&](int thread) {
      x.load_distances(thread, h, 0, p0);
      Tile::Sums::each(thread, kMaxWidth, sums(thread), [](int, int, A& sum) { sum = 0; });
    });
    for (int64_t b = 0; b < in.batch; ++b) {
      for (int i0 = 0; i0 < in.queries; i0 += kSide) {
        if (!x.seen(i0, p0)) continue;
        block.each([&](int thread) {
          x.load_queries_and_gradients(thread, b, h, i0);
          x.load_keys(thread, b, h, i0, p0);
        });
        block.each([&](int thread) { x.gradients(thread, b, h, i0, p0, [](int, int, A) {}); });
        block.each([&](int thread) {
          Tile::Sums::add(
              thread, in.width, kSide, sums(thread), [&](int c, int row) { return x.ds[row * Tile::kLine + c]; },
              [&](int, int row, int e) { return x.qp[row * x.wk + e]; });
        });
      }
    }
    block.each([&](int thread) {
      Tile::Sums::each(thread, in.width, sums(thread), [&](int c, int e, A& sum) {
        if (p0 + c < in.distances) grad_r[((p0 + c) * in.heads + h) * in.width + e] = sum;
      });
    });
  }
};

}  // namespace mnemo::ops::cuda
