// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/decode/attend_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/decode/attend_rows.h"
#include "ops/decode/key_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

// Up to kLanes keys [keys,width] as [width,kLanes], filled up with zeros. Each step moves the lowest bit of an
// element's place, (row, column), to the top.
template <class T>
HWY_INLINE void transpose_keys(const T* k, int64_t keys, int64_t width, float* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)keys;
  for (int64_t c = 0; c < width; ++c) to[c] = hn::GetLane(load(k + c));
#else
  const F d;
  for (int64_t c = 0; c < width; c += kLanes) {
    hn::Vec<F> rows[kLanes], turned[kLanes];
    HWY_UNROLL(16)
    for (int i = 0; i < kLanes; ++i) rows[i] = i < keys ? load(k + i * row_pitch<T>(width) + c) : hn::Zero(d);
    HWY_UNROLL(4) for (int step = 1; step < kLanes; step *= 2) {
      HWY_UNROLL(8) for (int i = 0; i < kLanes / 2; ++i) {
        turned[i] = hn::ConcatEven(d, rows[2 * i + 1], rows[2 * i]);
        turned[kLanes / 2 + i] = hn::ConcatOdd(d, rows[2 * i + 1], rows[2 * i]);
      }
      HWY_UNROLL(16) for (int i = 0; i < kLanes; ++i) rows[i] = turned[i];
    }
    HWY_UNROLL(16) for (int i = 0; i < kLanes; ++i) hn::StoreU(rows[i], d, to + (c + i) * kLanes);
  }
#endif
}

// The scores of Q queries and kLanes keys, one in each lane: the sums of every kLanes-th channel from each of `Lanes`
// channels on, added as store_sums() adds its lanes.
template <int Lanes, int Q, class Steps>
HWY_INLINE void sum_lanes(const float* q, int64_t width, const float* keys, Steps steps, int64_t channel,
                          hn::Vec<F> (&sums)[Q]) {
  const F d;
  if constexpr (Lanes == 1) {
    HWY_UNROLL(4) for (int i = 0; i < Q; ++i) sums[i] = hn::Zero(d);
    for (int64_t step = 0; step < steps; ++step, channel += kLanes) {
      const auto key = hn::LoadU(d, keys + channel * kLanes);
      HWY_UNROLL(4)
      for (int i = 0; i < Q; ++i) sums[i] = hn::MulAdd(hn::Set(d, q[i * width + channel]), key, sums[i]);
    }
  } else {
    hn::Vec<F> others[Q];
    sum_lanes<Lanes / 2>(q, width, keys, steps, channel, sums);
    sum_lanes<Lanes / 2>(q, width, keys, steps, channel + Lanes / 2, others);
    HWY_UNROLL(4) for (int i = 0; i < Q; ++i) sums[i] = hn::Add(sums[i], others[i]);
  }
}

template <class T>
HWY_INLINE void key_scores_of_rows_impl(const float* q, int64_t queries, const T* k, int64_t count, int64_t width,
                                        float* s, int64_t s_stride) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < width * kLanes) memory.resize(static_cast<size_t>(width * kLanes));
  float* keys = memory.data();
  for (int64_t j = 0; j < count; j += kLanes) {
    transpose_keys(k + j * row_pitch<T>(width), std::min<int64_t>(kLanes, count - j), width, keys);
    for (int64_t first = 0; first < queries; first += kMostQueries) {
      with_queries<kMostQueries>(queries - first, [&](auto some) HWY_ATTR {
        constexpr int kQueries = some();
        hn::Vec<F> sums[kQueries];
        constexpr std::integral_constant<int64_t, 64 / kLanes> usual;  // of the most common head
        if (width == 64) {
          sum_lanes<kLanes>(q + first * width, width, keys, usual, 0, sums);
        } else {
          sum_lanes<kLanes>(q + first * width, width, keys, width / kLanes, 0, sums);
        }
        HWY_UNROLL(4)
        for (int i = 0; i < kQueries; ++i) hn::StoreU(sums[i], F(), s + (first + i) * s_stride + j);
      });
    }
  }
}

template <class T>
HWY_INLINE void weigh_values_of_rows_impl(const float* p, int64_t queries, int64_t p_stride, const T* v,
                                          const int64_t* counts, int64_t width, float* o) {
  const int64_t most = *std::max_element(counts, counts + queries);
  const auto count = [&](int64_t query) { return counts[query]; };
  if constexpr (std::is_same_v<T, int8_t>) {
    weigh_scaled_blocks(p, queries, p_stride, v, count, most, width, o);
  } else {
    weigh_blocks(p, queries, p_stride, v, count, most, width, o);
  }
}

void KeyScoresOfRowsFloat(const float* q, int64_t queries, const float* k, int64_t count, int64_t width, float* s,
                          int64_t s_stride) {
  key_scores_of_rows_impl(q, queries, k, count, width, s, s_stride);
}
void KeyScoresOfRowsBf16(const float* q, int64_t queries, const Bf16Bits* k, int64_t count, int64_t width, float* s,
                         int64_t s_stride) {
  key_scores_of_rows_impl(q, queries, k, count, width, s, s_stride);
}
void KeyScoresOfRowsInt8(const float* q, int64_t queries, const int8_t* k, int64_t count, int64_t width, float* s,
                         int64_t s_stride) {
  key_scores_of_rows_impl(q, queries, k, count, width, s, s_stride);
  scale_scores(k, queries, count, width, s, s_stride);
}
void WeighValuesOfRowsFloat(const float* p, int64_t queries, int64_t p_stride, const float* v, const int64_t* counts,
                            int64_t width, float* o) {
  weigh_values_of_rows_impl(p, queries, p_stride, v, counts, width, o);
}
void WeighValuesOfRowsBf16(const float* p, int64_t queries, int64_t p_stride, const Bf16Bits* v, const int64_t* counts,
                           int64_t width, float* o) {
  weigh_values_of_rows_impl(p, queries, p_stride, v, counts, width, o);
}
void WeighValuesOfRowsInt8(const float* p, int64_t queries, int64_t p_stride, const int8_t* v, const int64_t* counts,
                           int64_t width, float* o) {
  weigh_values_of_rows_impl(p, queries, p_stride, v, counts, width, o);
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(KeyScoresOfRowsFloat);
HWY_EXPORT(KeyScoresOfRowsBf16);
HWY_EXPORT(KeyScoresOfRowsInt8);
HWY_EXPORT(WeighValuesOfRowsFloat);
HWY_EXPORT(WeighValuesOfRowsBf16);
HWY_EXPORT(WeighValuesOfRowsInt8);

template <>
void key_scores_of_rows(const float* q, int64_t queries, const float* k, int64_t count, int64_t width, float* s,
                        int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfRowsFloat)(q, queries, k, count, width, s, s_stride);
}
template <>
void key_scores_of_rows(const float* q, int64_t queries, const Bf16Bits* k, int64_t count, int64_t width, float* s,
                        int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfRowsBf16)(q, queries, k, count, width, s, s_stride);
}
template <>
void key_scores_of_rows(const float* q, int64_t queries, const int8_t* k, int64_t count, int64_t width, float* s,
                        int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfRowsInt8)(q, queries, k, count, width, s, s_stride);
}
template <>
void weigh_values_of_rows(const float* p, int64_t queries, int64_t p_stride, const float* v, const int64_t* counts,
                          int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfRowsFloat)(p, queries, p_stride, v, counts, width, o);
}
template <>
void weigh_values_of_rows(const float* p, int64_t queries, int64_t p_stride, const Bf16Bits* v, const int64_t* counts,
                          int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfRowsBf16)(p, queries, p_stride, v, counts, width, o);
}
template <>
void weigh_values_of_rows(const float* p, int64_t queries, int64_t p_stride, const int8_t* v, const int64_t* counts,
                          int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfRowsInt8)(p, queries, p_stride, v, counts, width, o);
}

}  // namespace mnemo::ops
#endif
