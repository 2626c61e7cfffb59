#include "ops/attention/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/linear/gemm.h"
#include "ops/row_kernels.h"
#include "ops/scratch.h"

namespace mnemo::ops {
namespace {

/// A tile computes the scores of rows + columns - 1 distances and uses `columns` of them in each row: 64 x 256 would
/// compute a quarter too many, 64 x 1,024 a sixteenth.
constexpr int64_t kTileQueries = 64, kTileKeys = 1024;

/// A rectangle of scores: queries i0 .. i0 + rows, keys j0 .. j0 + columns, of one head of one sequence.
///
/// Position scores of the tile: query i0 + r and key j0 + c have the distance column c + j0 + Q-1 - (i0 + r), so the
/// tile needs the columns low .. low + rows + columns - 2, and its row r starts at rows-1-r among them.
template <class T>
struct Tile {
  const AttentionProblem<T>& p;
  int64_t b, h, i0, rows, j0 = 0, columns = 0;

  int64_t low() const { return j0 + p.queries - i0 - rows; }
  /// Number of position columns that exist; those beyond belong to keys that no query here may see.
  int64_t distances() const { return std::clamp<int64_t>(p.distances - low(), 0, rows + columns - 1); }
  /// Calls f(first, size) for the pieces of the tile that row r may see, in columns of the tile.
  template <class F>
  void pieces(int64_t r, F&& f) const {
    for (int32_t piece = p.offsets[i0 + r]; piece < p.offsets[i0 + r + 1]; ++piece) {
      const int64_t first = std::max<int64_t>(p.bounds[2 * piece] - j0, 0);
      const int64_t last = std::min<int64_t>(p.bounds[2 * piece + 1] - j0, columns);
      if (first < last) f(first, last - first);
    }
  }
  /// Calls f(first, last) for the stretches of keys that some of these queries see, in ascending order. Gaps shorter
  /// than kShortGap are computed needlessly, since a separate product per stretch would cost more.
  template <class F>
  void stretches(F&& f) const {
    constexpr int32_t kShortGap = 32;
    const int32_t begin = p.offsets[i0], end = p.offsets[i0 + rows];
    int32_t least = static_cast<int32_t>(p.keys), most = 0;
    for (int32_t piece = begin; piece < end; ++piece) {
      least = std::min(least, p.bounds[2 * piece]);
      most = std::max(most, p.bounds[2 * piece + 1]);
    }
    if (least >= most) return;
    // How many more queries see a key than see the previous one.
    std::vector<int32_t> more(static_cast<size_t>(most - least) + 1, 0);
    for (int32_t piece = begin; piece < end; ++piece) {
      ++more[static_cast<size_t>(p.bounds[2 * piece] - least)];
      --more[static_cast<size_t>(p.bounds[2 * piece + 1] - least)];
    }
    int32_t seeing = 0, first = least, last = least;
    for (int32_t key = least; key < most; ++key) {
      seeing += more[static_cast<size_t>(key - least)];
      if (seeing == 0) continue;
      if (key >= last + kShortGap) {
        f(first, last);
        first = key;
      }
      last = key + 1;
    }
    f(first, last);
  }
  /// Applies dropout to the weights of row r, or to values that belong to them. Gaps are zeros, or unused.
  void drop(int64_t r, T* s) const {
    if (p.dropout.p == 0.0) return;
    const int64_t place = (((b * p.heads + h) * p.queries + i0 + r) * p.keys) + j0;
    drop_run<T>(p.dropout, place, s, columns, s);
  }
  void hide_padding(T* s) const {
    if (p.valid == nullptr) return;
    const bool* valid = p.valid + b * p.keys + j0;
    for (int64_t c = 0; c < columns; ++c) {
      if (!valid[c]) s[c] = -kInfinity<T>;
    }
  }
};

/// The queries of a tile with each bias added, and buffers for the tiles' scores.
template <class T>
struct Workspace {
  T *q_content, *q_position, *s, *position;
  int64_t position_stride = 0;

  /// How many scores the largest tile has, and how many position scores.
  static int64_t tile_size(const AttentionProblem<T>& p) { return kTileQueries * std::min(kTileKeys, p.keys); }
  static int64_t position_size(const AttentionProblem<T>& p) {
    return p.r || p.scores ? tile_size(p) + kTileQueries * kTileQueries : 0;
  }
  static int64_t size(const AttentionProblem<T>& p) {
    return 2 * Scratch<T>::padded(kTileQueries * p.width) + Scratch<T>::padded(tile_size(p)) +
           Scratch<T>::padded(position_size(p));
  }
  Workspace(const AttentionProblem<T>& p, Scratch<T>& scratch)
      : q_content(scratch.take(kTileQueries * p.width)),
        q_position(scratch.take(kTileQueries * p.width)),
        s(scratch.take(tile_size(p))),
        position(scratch.take(position_size(p))) {}

  void load_queries(const Tile<T>& tile) {
    const AttentionProblem<T>& p = tile.p;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const T* q = p.q.row(tile.b, tile.h, tile.i0 + r);
      sum_rows(q, p.u == nullptr ? nullptr : p.u + tile.h * p.width, q_content + r * p.width, p.width);
      if (p.r)
        sum_rows(q, p.v_bias == nullptr ? nullptr : p.v_bias + tile.h * p.width, q_position + r * p.width, p.width);
    }
  }
  /// s = scale q.k, and separately the position scores (also scaled), not yet shifted or added.
  void scores(const Tile<T>& tile) {
    const AttentionProblem<T>& p = tile.p;
    gemm<T>(tile.rows, tile.columns, p.width, p.scale, {q_content, p.width},
            transpose(p.k.row(tile.b, tile.h, tile.j0), p.k.row_stride), T(0), s, tile.columns);
    if (!p.r && !p.scores) return;
    const int64_t columns = tile.rows + tile.columns - 1, known = tile.distances();
    position_stride = columns;
    if (p.r && known > 0) {
      gemm<T>(tile.rows, known, p.width, p.scale, {q_position, p.width},
              transpose(p.r.row(0, tile.h, tile.low()), p.r.row_stride), T(0), position, columns);
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      T* row = position + r * columns;
      if (p.scores) {
        const T* given = p.scores.row(tile.b, tile.h, tile.i0 + r) + tile.low();
        for (int64_t c = 0; c < known; ++c) row[c] = given[c] * p.scale;
      }
      std::fill(row + known, row + columns, T(0));
    }
  }
  /// Position scores of row r, starting at column c of the tile, or null.
  const T* position_row(const Tile<T>& tile, int64_t r, int64_t c) const {
    return tile.p.r || tile.p.scores ? position + r * position_stride + tile.rows - 1 - r + c : nullptr;
  }
};

/// Zeros where the row has no piece.
template <class T>
void clear_gaps(const Tile<T>& tile, int64_t r, T* row) {
  int64_t end = 0;
  tile.pieces(r, [&](int64_t first, int64_t size) {
    std::fill(row + end, row + first, T(0));
    end = first + size;
  });
  std::fill(row + end, row + tile.columns, T(0));
}

template <class T, class F>
void for_each_tile(Tile<T>& tile, F&& f) {
  tile.stretches([&](int64_t first, int64_t last) {
    for (tile.j0 = first; tile.j0 < last; tile.j0 += tile.columns) {
      tile.columns = std::min(kTileKeys, last - tile.j0);
      f();
    }
  });
}

template <class T>
void forward_rows(const AttentionProblem<T>& p, const Heads<T>& o, T* log_sum, int64_t b, int64_t h, int64_t i0) {
  Scratch<T> scratch(Workspace<T>::size(p) + Scratch<T>::padded(kTileQueries * p.value_width));
  Workspace<T> work(p, scratch);
  T* out = scratch.take(kTileQueries * p.value_width);
  Tile<T> tile{p, b, h, i0, std::min(kTileQueries, p.queries - i0)};
  T most[kTileQueries], sum[kTileQueries];
  std::fill(most, most + tile.rows, -kInfinity<T>);
  std::fill(sum, sum + tile.rows, T(0));
  work.load_queries(tile);
  bool first_tile = true;
  for_each_tile(tile, [&] {
    work.scores(tile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      T* s = work.s + r * tile.columns;
      tile.hide_padding(s);
      T high = -kInfinity<T>;
      tile.pieces(r, [&](int64_t c, int64_t size) {
        high = std::max(high, add_then_max(s + c, work.position_row(tile, r, c), size));
      });
      const T before = most[r];
      if (high > before) most[r] = high;
      // Only -inf (padding) or NaN so far: a NaN must propagate, padding must not.
      const T shift = most[r] == -kInfinity<T> ? T(0) : most[r];
      if (!first_tile && most[r] > before) {
        const T keep = std::exp(before - most[r]);
        sum[r] *= keep;
        multiply(out + r * p.value_width, p.value_width, keep);
      }
      tile.pieces(r, [&](int64_t c, int64_t size) { sum[r] += exp_then_sum(s + c, size, shift); });
      clear_gaps(tile, r, s);
      tile.drop(r, s);
    }
    gemm<T>(tile.rows, p.value_width, tile.columns, T(1), {work.s, tile.columns},
            {p.v.row(b, h, tile.j0), p.v.row_stride}, first_tile ? T(0) : T(1), out, p.value_width);
    first_tile = false;
  });
  for (int64_t r = 0; r < tile.rows; ++r) {
    T* to = o.row(b, h, i0 + r);
    const bool none = first_tile || sum[r] == T(0);
    if (log_sum != nullptr)
      log_sum[(b * p.heads + h) * p.queries + i0 + r] = none ? kInfinity<T> : most[r] + std::log(sum[r]);
    if (none) {
      std::fill(to, to + p.value_width, T(0));
    } else {
      sum_rows<T>(out + r * p.value_width, nullptr, to, p.value_width);
      multiply(to, p.value_width, T(1) / sum[r]);
    }
  }
}

/// One head of some sequences, over all queries: gradients of keys, values and distances are sums over queries.
template <class T>
class BackwardHead {
 public:
  BackwardHead(const AttentionProblem<T>& p, const AttentionGradients<T>& g, int64_t part, int64_t h)
      : p_(p),
        g_(g),
        part_(part),
        h_(h),
        scratch_(2 * Workspace<T>::size(p)),  // each buffer has one for its gradient
        work_(p, scratch_),
        grad_s_(scratch_.take(Workspace<T>::tile_size(p))),
        grad_position_(scratch_.take(Workspace<T>::position_size(p))),
        grad_q_content_(scratch_.take(kTileQueries * p.width)),
        grad_q_position_(scratch_.take(kTileQueries * p.width)) {}

  void run(int64_t b, int64_t i0) {
    Tile<T> tile{p_, b, h_, i0, std::min(kTileQueries, p_.queries - i0)};
    work_.load_queries(tile);
    std::fill(grad_q_content_, grad_q_content_ + tile.rows * p_.width, T(0));
    std::fill(grad_q_position_, grad_q_position_ + tile.rows * p_.width, T(0));
    T mean[kTileQueries];
    for (int64_t r = 0; r < tile.rows; ++r) {
      mean[r] = inner_product(g_.o.row(b, h_, i0 + r), g_.grad_o.row(b, h_, i0 + r), p_.value_width);
      if (g_.scores) {
        T* row = g_.scores.row(b, h_, i0 + r);
        std::fill(row, row + p_.distances, T(0));
      }
    }
    for_each_tile(tile, [&] { this->tile(tile, mean); });
    for (int64_t r = 0; r < tile.rows; ++r) {
      const T *content = grad_q_content_ + r * p_.width, *position = grad_q_position_ + r * p_.width;
      sum_rows<T>(content, p_.r ? position : nullptr, g_.q.row(b, h_, i0 + r), p_.width);
      if (g_.u != nullptr) accumulate(g_.u + (part_ * p_.heads + h_) * p_.width, content, p_.width);
      if (g_.v_bias != nullptr) accumulate(g_.v_bias + (part_ * p_.heads + h_) * p_.width, position, p_.width);
    }
  }

 private:
  void tile(const Tile<T>& tile, const T* mean) {
    const int64_t b = tile.b, rows = tile.rows, columns = tile.columns;
    const T* grad_o = g_.grad_o.row(b, h_, tile.i0);
    work_.scores(tile);
    gemm<T>(rows, columns, p_.value_width, T(1), {grad_o, g_.grad_o.row_stride},
            transpose(p_.v.row(b, h_, tile.j0), p_.v.row_stride), T(0), grad_s_, columns);
    for (int64_t r = 0; r < rows; ++r) {
      T *s = work_.s + r * columns, *grad = grad_s_ + r * columns;
      const T log_sum = g_.log_sum[(b * p_.heads + h_) * p_.queries + tile.i0 + r];
      tile.hide_padding(s);
      tile.drop(r, grad);
      tile.pieces(r, [&](int64_t c, int64_t size) {
        add_then_exp(s + c, work_.position_row(tile, r, c), size, log_sum);
        softmax_grad(s + c, grad + c, size, mean[r], p_.scale);
      });
      clear_gaps(tile, r, s);
      clear_gaps(tile, r, grad);
      tile.drop(r, s);
    }
    gemm<T>(columns, p_.value_width, rows, T(1), transpose<T>(work_.s, columns), {grad_o, g_.grad_o.row_stride}, T(1),
            g_.v.row(b, h_, tile.j0), g_.v.row_stride);
    gemm<T>(columns, p_.width, rows, T(1), transpose<T>(grad_s_, columns), {work_.q_content, p_.width}, T(1),
            g_.k.row(b, h_, tile.j0), g_.k.row_stride);
    gemm<T>(rows, p_.width, columns, T(1), {grad_s_, columns}, {p_.k.row(b, h_, tile.j0), p_.k.row_stride}, T(1),
            grad_q_content_, p_.width);
    if (p_.r || g_.scores) positions(tile);
  }

  void positions(const Tile<T>& tile) {
    const int64_t rows = tile.rows, columns = tile.columns, stride = rows + columns - 1, known = tile.distances();
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = grad_s_ + r * columns;
      const int64_t shift = rows - 1 - r, kept = std::min(columns, known - shift);
      if (g_.scores) {
        T* to = g_.scores.row(tile.b, h_, tile.i0 + r) + tile.low() + shift;
        if (kept > 0) std::copy(from, from + kept, to);
        continue;
      }
      T* to = grad_position_ + r * stride;
      std::fill(to, to + shift, T(0));
      std::copy(from, from + columns, to + shift);
      std::fill(to + shift + columns, to + stride, T(0));
    }
    if (g_.scores || known == 0) return;
    gemm<T>(rows, p_.width, known, T(1), {grad_position_, stride}, {p_.r.row(0, h_, tile.low()), p_.r.row_stride}, T(1),
            grad_q_position_, p_.width);
    gemm<T>(known, p_.width, rows, T(1), transpose<T>(grad_position_, stride), {work_.q_position, p_.width}, T(1),
            g_.r.row(part_, h_, tile.low()), g_.r.row_stride);
  }

  const AttentionProblem<T>& p_;
  const AttentionGradients<T>& g_;
  int64_t part_, h_;
  Scratch<T> scratch_;
  Workspace<T> work_;
  T *grad_s_, *grad_position_, *grad_q_content_, *grad_q_position_;
};

/// The number of tasks for one thread: below about 2^18 multiplications, another thread does not pay off.
template <class T>
int64_t grain(const AttentionProblem<T>& p, int64_t queries) {
  constexpr int64_t kWorthAThread = 1 << 18;
  return std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, queries * p.keys * p.width));
}

/// The most keys of forward_short(), and its queries per tile.
constexpr int64_t kShortKeys = 256, kShortQueries = 256;

/// Whether every query sees every key, nothing is added to the scores, and the keys are few.
template <class T>
bool is_short(const AttentionProblem<T>& p) {
  return p.all && p.keys > 0 && p.keys <= kShortKeys && !p.r && !p.scores && p.u == nullptr;
}

/// Reads queries and writes outputs in place, with the softmax of each row in a single pass.
template <class T>
void forward_short(const AttentionProblem<T>& p, const Heads<T>& o, T* log_sum) {
  const int64_t blocks = (p.queries + kShortQueries - 1) / kShortQueries;
  parallel_products(
      0, p.batch * p.heads * blocks, grain(p, std::min(p.queries, kShortQueries)), [&](int64_t begin, int64_t end) {
        const int64_t stride = (p.keys + kSoftmaxBeyond - 1) / kSoftmaxBeyond * kSoftmaxBeyond,
                      size = kShortQueries * stride;
        Scratch<T> scratch(Scratch<T>::padded(size));
        T* s = scratch.take(size);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t block = task % blocks, head = task / blocks, b = head / p.heads, h = head % p.heads;
          const int64_t i0 = p.queries * block / blocks, rows = p.queries * (block + 1) / blocks - i0;
          gemm<T>(rows, p.keys, p.width, p.scale, {p.q.row(b, h, i0), p.q.row_stride},
                  transpose(p.k.row(b, h, 0), p.k.row_stride), T(0), s, stride);
          softmax_rows<T>(s, rows, p.keys, stride, log_sum == nullptr ? nullptr : log_sum + head * p.queries + i0);
          if (p.dropout.p > 0.0) {
            for (int64_t r = 0; r < rows; ++r)
              drop_run<T>(p.dropout, (head * p.queries + i0 + r) * p.keys, s + r * stride, p.keys, s + r * stride);
          }
          gemm<T>(rows, p.value_width, p.keys, T(1), {s, stride}, {p.v.row(b, h, 0), p.v.row_stride}, T(0),
                  o.row(b, h, i0), o.row_stride);
        }
      });
}

}  // namespace

template <class T>
void attention_forward(const AttentionProblem<T>& p, const Heads<T>& o, T* log_sum) {
  if (is_short(p)) return forward_short(p, o, log_sum);
  const int64_t blocks = (p.queries + kTileQueries - 1) / kTileQueries;
  parallel_products(0, p.batch * p.heads * blocks, grain(p, std::min(p.queries, kTileQueries)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t task = begin; task < end; ++task) {
                        const int64_t block = task % blocks, head = task / blocks;
                        forward_rows(p, o, log_sum, head / p.heads, head % p.heads, block * kTileQueries);
                      }
                    });
}

template <class T>
void attention_backward(const AttentionProblem<T>& p, const AttentionGradients<T>& g) {
  const int64_t most = (p.batch + g.parts - 1) / g.parts;
  parallel_products(0, g.parts * p.heads, grain(p, p.queries * most), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task / p.heads;
      BackwardHead<T> head(p, g, part, task % p.heads);
      for (int64_t b = part * most; b < std::min(p.batch, (part + 1) * most); ++b) {
        for (int64_t i0 = 0; i0 < p.queries; i0 += kTileQueries) head.run(b, i0);
      }
    }
  });
}

template void attention_forward(const AttentionProblem<float>&, const Heads<float>&, float*);
template void attention_forward(const AttentionProblem<double>&, const Heads<double>&, double*);
template void attention_backward(const AttentionProblem<float>&, const AttentionGradients<float>&);
template void attention_backward(const AttentionProblem<double>&, const AttentionGradients<double>&);

}  // namespace mnemo::ops
