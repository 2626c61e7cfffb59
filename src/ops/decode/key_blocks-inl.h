// Loops over keys and values, compiled once per instruction set. Included by decode_rows.cpp and attend_rows.cpp: a
// query's scores and sums have the same bits in both, so that a token's row does not depend on how a prompt was cut.
#if defined(MNEMO_KEY_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MNEMO_KEY_BLOCKS_INL_H
#undef MNEMO_KEY_BLOCKS_INL_H
#else
#define MNEMO_KEY_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/decode/decode_rows.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = HWY_MIN(16, HWY_LANES(float));
using F = hn::FixedTag<float, kLanes>;
using U = hn::FixedTag<uint32_t, kLanes>;

HWY_INLINE hn::Vec<F> load(const float* x) { return hn::LoadU(F(), x); }
HWY_INLINE hn::Vec<F> load(const Bf16Bits* x) {
  return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(hn::FixedTag<uint16_t, kLanes>(), x))));
}
HWY_INLINE hn::Vec<F> load(const int8_t* x) {
  return hn::ConvertTo(F(),
                       hn::PromoteTo(hn::FixedTag<int32_t, kLanes>(), hn::LoadU(hn::FixedTag<int8_t, kLanes>(), x)));
}

HWY_INLINE float sum_of(hn::Vec<F> x) { return hn::GetLane(hn::SumOfLanes(F(), x)); }

// Full memory bandwidth needs several streams: rows of keys and values are divided into this many parts that are read
// in parallel (a single stream reaches 6 of 11 GB/s on Zen 3).
constexpr int kStreams = 8;
constexpr int64_t kStreamRows = 64;  // of keys in a part, at least
constexpr int64_t kBlockRows = 256;  // of values that are divided
constexpr int64_t kAhead = 1024;     // bytes in front of what is read that are fetched in time, in each stream

// Queries that read keys and values together: as many as leave registers for their sums.
constexpr int kMostQueries = kLanes == 16 ? 4 : 2;

// Calls f(integral_constant<int, n>()) for 1 <= n <= Most.
template <int Most, class Call>
HWY_INLINE void with_queries(int64_t n, const Call& f) {
  if constexpr (Most > 1) {
    if (n < Most) return with_queries<Most - 1>(n, f);
  }
  f(std::integral_constant<int, Most>());
}

// N vectors of the sums of Q queries over a block of values, of which query i has counts[i]: all have the whole block,
// which is read in streams, or none has. `more`: added to the sums of blocks before it.
template <int Q, int N, class T>
HWY_INLINE void weigh_block(const float* p, int64_t p_stride, const T* v, const int64_t (&counts)[Q], int64_t width,
                            float* o, bool more) {
  const F d;
  const int64_t pitch = row_pitch<T>(width);
  hn::Vec<F> sums[Q][N];
  HWY_UNROLL(4) for (int i = 0; i < Q; ++i) { HWY_UNROLL(8) for (int n = 0; n < N; ++n) sums[i][n] = hn::Zero(d); }
  const auto add = [&](int64_t j) HWY_ATTR {
    hn::Vec<F> weight[Q];
    HWY_UNROLL(4) for (int i = 0; i < Q; ++i) weight[i] = hn::Set(d, p[i * p_stride + j]);
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) {
      const auto value = load(v + j * pitch + n * kLanes);
      __builtin_prefetch(v + j * pitch + n * kLanes + kAhead / sizeof(T), 0, 3);
      HWY_UNROLL(4) for (int i = 0; i < Q; ++i) sums[i][n] = hn::MulAdd(weight[i], value, sums[i][n]);
    }
  };
  const int64_t common = *std::min_element(counts, counts + Q), most = *std::max_element(counts, counts + Q);
  if (common == kBlockRows) {
    constexpr int64_t kPart = kBlockRows / kStreams;
    for (int64_t j = 0; j < kPart; ++j) {
      for (int stream = 0; stream < kStreams; ++stream) add(j + stream * kPart);
    }
  } else {
    for (int64_t j = 0; j < common; ++j) add(j);
  }
  for (int64_t j = common; j < most; ++j) {
    HWY_UNROLL(4) for (int i = 0; i < Q; ++i) {
      if (j >= counts[i]) continue;
      const auto weight = hn::Set(d, p[i * p_stride + j]);
      HWY_UNROLL(8)
      for (int n = 0; n < N; ++n) sums[i][n] = hn::MulAdd(weight, load(v + j * pitch + n * kLanes), sums[i][n]);
    }
  }
  HWY_UNROLL(4) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) {
      float* to = o + i * width + n * kLanes;
      hn::StoreU(more ? hn::Add(hn::LoadU(d, to), sums[i][n]) : sums[i][n], d, to);
    }
  }
}

template <int Q, class T>
HWY_INLINE void weigh_channels(const float* p, int64_t p_stride, const T* v, const int64_t (&counts)[Q], int64_t width,
                               float* o, bool more) {
  int64_t c = 0;
  if constexpr (Q == 1) {
    for (; c + 8 * kLanes <= width; c += 8 * kLanes) weigh_block<Q, 8>(p, p_stride, v + c, counts, width, o + c, more);
  }
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) weigh_block<Q, 4>(p, p_stride, v + c, counts, width, o + c, more);
  for (; c < width; c += kLanes) weigh_block<Q, 1>(p, p_stride, v + c, counts, width, o + c, more);
}

// The sums of queries over count(query) values, a block after the other, which stays in a cache for all queries. The
// order of a sum depends on its count alone.
template <class T, class Count>
HWY_INLINE void weigh_blocks(const float* p, int64_t queries, int64_t p_stride, const T* v, const Count& count,
                             int64_t most, int64_t width, float* o) {
  for (int64_t from = 0; from == 0 || from < most; from += kBlockRows) {
    const auto left = [&](int64_t query) { return std::clamp<int64_t>(count(query) - from, 0, kBlockRows); };
    for (int64_t first = 0, together = 0; first < queries; first += together) {
      const bool whole = left(first) == kBlockRows;
      together = 1;
      while (together < kMostQueries && first + together < queries && (left(first + together) == kBlockRows) == whole)
        ++together;
      with_queries<kMostQueries>(together, [&](auto some) HWY_ATTR {
        int64_t values[some()];
        for (int i = 0; i < some(); ++i) values[i] = left(first + i);
        weigh_channels<some()>(p + first * p_stride + from, p_stride, v + from * row_pitch<T>(width), values, width,
                               o + first * width, from > 0);
      });
    }
  }
}

// The scales of rows of int8, until the next call.
HWY_INLINE const float* scales_of(const int8_t* rows, int64_t count, int64_t width) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < count) memory.resize(static_cast<size_t>(count + count / 2));
  for (int64_t j = 0; j < count; ++j)
    memory[static_cast<size_t>(j)] = row_scale(rows + j * row_pitch<int8_t>(width), width);
  return memory.data();
}

// Scores of the numbers of int8 keys, times the keys' scales.
HWY_INLINE void scale_scores(const int8_t* k, int64_t queries, int64_t count, int64_t width, float* s,
                             int64_t s_stride) {
  const float* scales = scales_of(k, count, width);
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < count; ++j) s[i * s_stride + j] *= scales[j];
  }
}

// weigh_blocks() of int8 values: each weight times its value's scale.
template <class Count>
HWY_INLINE void weigh_scaled_blocks(const float* p, int64_t queries, int64_t p_stride, const int8_t* v,
                                    const Count& count, int64_t most, int64_t width, float* o) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < queries * most) memory.resize(static_cast<size_t>(queries * most * 3 / 2));
  const float* scales = scales_of(v, most, width);
  for (int64_t i = 0; i < queries; ++i) {
    float* weights = memory.data() + i * most;
    for (int64_t j = 0; j < count(i); ++j) weights[j] = p[i * p_stride + j] * scales[j];
  }
  weigh_blocks(memory.data(), queries, most, v, count, most, width, o);
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
