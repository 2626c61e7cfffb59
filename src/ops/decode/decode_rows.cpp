// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/decode/decode_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/activation.h"
#include "ops/decode/decode_rows.h"
#include "ops/decode/key_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

using One = hn::FixedTag<float, 1>;

// Whole vectors, then the rest one by one.
template <class Body>
HWY_INLINE void each(int64_t size, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body(F(), i);
  for (; i < size; ++i) body(One(), i);
}

// The sums of N vectors, N = 1, 4 or 8, in to[n * step]. Neighbours are added until each vector has one sum of each,
// which takes a third of the shuffles of one sum after the other.
template <int N>
HWY_INLINE void store_sums(hn::Vec<F> (&sums)[N], int64_t step, float* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kLanes >= N / 2) {
    const F d;
    int vectors = N;
    HWY_UNROLL(4) for (int lanes = kLanes; lanes > 1; lanes /= 2) {
      const int pairs = vectors > 1 ? vectors / 2 : 1;
      HWY_UNROLL(4) for (int i = 0; i < pairs; ++i) {
        const auto low = sums[2 * i < vectors ? 2 * i : 0], high = sums[2 * i + 1 < vectors ? 2 * i + 1 : 0];
        sums[i] = hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
      }
      vectors = pairs;
    }
    alignas(64) float found[HWY_MAX(kLanes, N)];
    for (int i = 0; i < vectors; ++i) hn::StoreU(sums[i], d, found + i * kLanes);
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) to[n * step] = found[n];
    return;
  }
#endif
  HWY_UNROLL(8) for (int n = 0; n < N; ++n) to[n * step] = sum_of(sums[n]);
}

// Scores of Q queries and N keys that are `step` rows apart.
template <int Q, int N, class T>
HWY_INLINE void score_block(const float* q, const T* k, int64_t step, int64_t width, float* s, int64_t s_stride) {
  const F d;
  const int64_t stride = step * row_pitch<T>(width);
  hn::Vec<F> sums[Q][N];
  HWY_UNROLL(4) for (int i = 0; i < Q; ++i) { HWY_UNROLL(8) for (int n = 0; n < N; ++n) sums[i][n] = hn::Zero(d); }
  for (int64_t c = 0; c < width; c += kLanes) {
    hn::Vec<F> query[Q];
    HWY_UNROLL(4) for (int i = 0; i < Q; ++i) query[i] = hn::LoadU(d, q + i * width + c);
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) {
      const auto key = load(k + n * stride + c);
      __builtin_prefetch(k + n * stride + c + kAhead / sizeof(T), 0, 3);
      HWY_UNROLL(4) for (int i = 0; i < Q; ++i) sums[i][n] = hn::MulAdd(query[i], key, sums[i][n]);
    }
  }
  HWY_UNROLL(4) for (int i = 0; i < Q; ++i) store_sums(sums[i], step, s + i * s_stride);
}

// One query, with the position term r . qr of the keys' distances.
template <int N, class T>
HWY_INLINE void score_block_at_distance(const float* q, const float* qr, const T* k, const T* r, int64_t step,
                                        int64_t width, float* s) {
  const F d;
  const int64_t stride = step * width;
  hn::Vec<F> sums[N];
  HWY_UNROLL(8) for (int n = 0; n < N; ++n) sums[n] = hn::Zero(d);
  for (int64_t c = 0; c < width; c += kLanes) {
    const auto query = hn::LoadU(d, q + c);
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) sums[n] = hn::MulAdd(query, load(k + n * stride + c), sums[n]);
  }
  for (int64_t c = 0; c < width; c += kLanes) {
    const auto query = hn::LoadU(d, qr + c);
    HWY_UNROLL(8) for (int n = 0; n < N; ++n) sums[n] = hn::MulAdd(query, load(r - n * stride + c), sums[n]);
  }
  store_sums(sums, step, s);
}

// Calls block(Count, first, step) for blocks of Streams, 4 and 1 keys, `step` rows apart, that cover `count`.
template <int Streams, class Block>
HWY_INLINE void each_block(int64_t count, const Block& block) {
  int64_t j = 0;
  if (const int64_t part = count / Streams; part >= kStreamRows) {
    for (; j < part; ++j) block(std::integral_constant<int, Streams>(), j, part);
    j = part * Streams;
  }
  for (; j + 4 <= count; j += 4) block(std::integral_constant<int, 4>(), j, int64_t{1});
  for (; j < count; ++j) block(std::integral_constant<int, 1>(), j, int64_t{1});
}

template <class T>
HWY_INLINE void key_scores_at_distance(const float* q, const float* qr, const T* k, const T* r, int64_t count,
                                       int64_t width, float* s) {
  each_block<kStreams>(count, [&](auto keys, int64_t j, int64_t step) HWY_ATTR {
    score_block_at_distance<keys()>(q, qr, k + j * width, r - j * width, step, width, s + j);
  });
}

template <class T>
HWY_INLINE void key_scores_of_queries_impl(const float* q, int64_t queries, const T* k, int64_t count, int64_t width,
                                           float* s, int64_t s_stride) {
  for (int64_t first = 0; first < queries; first += kMostQueries) {
    with_queries<kMostQueries>(queries - first, [&](auto some) HWY_ATTR {
      // Sums of all queries and keys of a block stay in registers.
      each_block<(some() == 1 || (some() < 4 && kLanes == 16)) ? kStreams : kStreams / 2>(
          count, [&](auto keys, int64_t j, int64_t step) HWY_ATTR {
            score_block<some(), keys()>(q + first * width, k + j * row_pitch<T>(width), step, width,
                                        s + first * s_stride + j, s_stride);
          });
    });
  }
}

template <class T>
HWY_INLINE void weigh_values_of_queries_impl(const float* p, int64_t queries, int64_t p_stride, const T* v,
                                             int64_t count, int64_t width, float* o) {
  const auto all = [&](int64_t) { return count; };
  if constexpr (std::is_same_v<T, int8_t>) {
    weigh_scaled_blocks(p, queries, p_stride, v, all, count, width, o);
  } else {
    weigh_blocks(p, queries, p_stride, v, all, count, width, o);
  }
}

void KeyScoresAtDistanceFloat(const float* q, const float* qr, const float* k, const float* r, int64_t count,
                              int64_t width, float* s) {
  key_scores_at_distance(q, qr, k, r, count, width, s);
}
void KeyScoresAtDistanceBf16(const float* q, const float* qr, const Bf16Bits* k, const Bf16Bits* r, int64_t count,
                             int64_t width, float* s) {
  key_scores_at_distance(q, qr, k, r, count, width, s);
}
void KeyScoresOfQueriesFloat(const float* q, int64_t queries, const float* k, int64_t count, int64_t width, float* s,
                             int64_t s_stride) {
  key_scores_of_queries_impl(q, queries, k, count, width, s, s_stride);
}
void KeyScoresOfQueriesBf16(const float* q, int64_t queries, const Bf16Bits* k, int64_t count, int64_t width, float* s,
                            int64_t s_stride) {
  key_scores_of_queries_impl(q, queries, k, count, width, s, s_stride);
}
void KeyScoresOfQueriesInt8(const float* q, int64_t queries, const int8_t* k, int64_t count, int64_t width, float* s,
                            int64_t s_stride) {
  key_scores_of_queries_impl(q, queries, k, count, width, s, s_stride);
  scale_scores(k, queries, count, width, s, s_stride);
}
void WeighValuesOfQueriesFloat(const float* p, int64_t queries, int64_t p_stride, const float* v, int64_t count,
                               int64_t width, float* o) {
  weigh_values_of_queries_impl(p, queries, p_stride, v, count, width, o);
}
void WeighValuesOfQueriesBf16(const float* p, int64_t queries, int64_t p_stride, const Bf16Bits* v, int64_t count,
                              int64_t width, float* o) {
  weigh_values_of_queries_impl(p, queries, p_stride, v, count, width, o);
}
void WeighValuesOfQueriesInt8(const float* p, int64_t queries, int64_t p_stride, const int8_t* v, int64_t count,
                              int64_t width, float* o) {
  weigh_values_of_queries_impl(p, queries, p_stride, v, count, width, o);
}

void CopyBf16(const float* x, int64_t size, Bf16Bits* to) {
  each(size, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> whole;
    const hn::RebindToSigned<decltype(d)> with_sign;
    const hn::Rebind<uint16_t, decltype(d)> narrow;
    const auto value = hn::LoadU(d, x + i);
    const auto bits = hn::BitCast(whole, value), high = hn::ShiftRight<16>(bits);
    const auto half = hn::Add(hn::Set(whole, 0x7FFFu), hn::And(high, hn::Set(whole, 1u)));  // ties to even
    const auto nearest = hn::ShiftRight<16>(hn::Add(bits, half)), quiet = hn::Or(high, hn::Set(whole, 0x40u));
    const auto rounded = hn::IfThenElse(hn::RebindMask(whole, hn::IsNaN(value)), quiet, nearest);
    hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(with_sign, rounded)), narrow, to + i);
  });
}

// x / scale to the nearest numbers, which are -127 .. 127.
void DivideToInt8(const float* x, int64_t size, float scale, int8_t* to) {
  each(size, [&](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<int8_t, decltype(d)> narrow;
    const auto number = hn::NearestInt(hn::Div(hn::LoadU(d, x + i), hn::Set(d, scale)));
    hn::StoreU(hn::DemoteTo(narrow, number), narrow, to + i);
  });
}

// slots = keep * slots + write * row; returns the product with `q` of each slot in `dots` (null: not needed).
HWY_INLINE void write_slots(float* memory, const float* row, const float* keep, const float* write, const float* q,
                            int64_t slots, int64_t width, float* dots) {
  const F d;
  for (int64_t n = 0; n < slots; ++n) {
    const auto kept = hn::Set(d, keep[n]), written = hn::Set(d, write[n]);
    float* slot = memory + n * width;
    auto dot = hn::Zero(d);
    for (int64_t c = 0; c < width; c += kLanes) {
      const auto value = hn::MulAdd(written, hn::LoadU(d, row + c), hn::Mul(kept, hn::LoadU(d, slot + c)));
      hn::StoreU(value, d, slot + c);
      if (dots != nullptr) dot = hn::MulAdd(value, hn::LoadU(d, q + c), dot);
    }
    if (dots != nullptr) dots[n] = sum_of(dot);
  }
}

void AbcStep(const AbcSlots& slots, const float* q, const float* k, const float* v, const float* control,
             AbcActivation activation, float eps, float* scratch, float* o) {
  const int64_t n = slots.slots;
  float *keep = scratch, *write = scratch + n, *p = scratch + 2 * n;
  float* z = slots.z;
  if (activation == AbcActivation::exp) {
    each(n, [&](auto d, int64_t i) HWY_ATTR {
      const auto old = hn::LoadU(d, z + i), fresh = hn::LoadU(d, control + i);
      const auto most = hn::Max(old, fresh);
      const auto by_old = hn::Exp(d, hn::Sub(old, most)), by_fresh = hn::Exp(d, hn::Sub(fresh, most));
      const auto sum = hn::Add(by_old, by_fresh);
      hn::StoreU(hn::Div(by_old, sum), d, keep + i);
      hn::StoreU(hn::Div(by_fresh, sum), d, write + i);
      hn::StoreU(hn::Add(most, hn::Log(d, sum)), d, z + i);
    });
  } else {
    for (int64_t i = 0; i < n; ++i) {
      keep[i] = 1.0f;
      write[i] = activation == AbcActivation::relu ? std::max(control[i], 0.0f) : 1.0f / (1.0f + std::exp(-control[i]));
      if (control[i] != control[i]) write[i] = control[i];
      z[i] += write[i];
    }
  }
  write_slots(slots.k, k, keep, write, q, n, slots.width, p);
  if (activation != AbcActivation::exp) {
    for (int64_t i = 0; i < n; ++i) p[i] /= z[i] + eps;
  }
  float most = p[0], sum = 0.0f;
  for (int64_t i = 1; i < n; ++i) most = std::max(most, p[i]);
  each(n, [&](auto d, int64_t i)
              HWY_ATTR { hn::StoreU(hn::Exp(d, hn::Sub(hn::LoadU(d, p + i), hn::Set(d, most))), d, p + i); });
  for (int64_t i = 0; i < n; ++i) sum += p[i];
  for (int64_t i = 0; i < n; ++i) p[i] /= activation == AbcActivation::exp ? sum : sum * (z[i] + eps);
  write_slots(slots.v, v, keep, write, q, n, slots.width, nullptr);
  weigh_values_of_queries_impl(p, 1, n, slots.v, n, slots.width, o);
}

void WriteRows(float* memory, const float* row, const float* keep, const float* write, const float* q, int64_t count,
               int64_t width, float* dots) {
  write_slots(memory, row, keep, write, q, count, width, dots);
}

void NormaliseRow(const float* x, const float* weight, const float* bias, float eps, int64_t size, float* y) {
  const F d;
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) sums = hn::Add(sums, hn::LoadU(d, x + i));
  float sum = sum_of(sums);
  for (; i < size; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(size);
  auto squares = hn::Zero(d);
  for (i = 0; i + kLanes <= size; i += kLanes) {
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    squares = hn::MulAdd(centred, centred, squares);
  }
  float square = sum_of(squares);
  for (; i < size; ++i) square += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0f / std::sqrt(square / static_cast<float>(size) + eps);
  each(size, [&](auto tag, int64_t c) HWY_ATTR {
    const auto scaled = hn::Mul(hn::Sub(hn::LoadU(tag, x + c), hn::Set(tag, mean)), hn::Set(tag, factor));
    hn::StoreU(hn::MulAdd(scaled, hn::LoadU(tag, weight + c), hn::LoadU(tag, bias + c)), tag, y + c);
  });
}

void ScaleRow(const float* x, const float* weight, float eps, int64_t size, float* y) {
  const F d;
  auto squares = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto value = hn::LoadU(d, x + i);
    squares = hn::MulAdd(value, value, squares);
  }
  float square = sum_of(squares);
  for (; i < size; ++i) square += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(square / static_cast<float>(size) + eps);
  each(size, [&](auto tag, int64_t c) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(tag, x + c), hn::Set(tag, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(tag, weight + c)), tag, y + c);
  });
}

// erf by Abramowitz and Stegun, 7.1.26: error below 1.5e-7.
template <class D, class V>
HWY_INLINE V erf_of(D d, V x) {
  const auto size = hn::Abs(x);
  const auto t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(hn::Set(d, 0.3275911f), size, hn::Set(d, 1.0f)));
  auto sum = hn::Set(d, 1.061405429f);
  for (const float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    sum = hn::MulAdd(sum, t, hn::Set(d, coefficient));
  const auto positive = hn::NegMulAdd(hn::Mul(sum, t), hn::Exp(d, hn::Neg(hn::Mul(size, size))), hn::Set(d, 1.0f));
  return hn::CopySign(positive, x);
}

void ActivateRow(Activation activation, float* x, int64_t size) {
  if (activation == Activation::relu) {
    each(size, [&](auto d, int64_t i) HWY_ATTR {
      const auto value = hn::LoadU(d, x + i);
      hn::StoreU(hn::IfThenElse(hn::Lt(value, hn::Zero(d)), hn::Zero(d), value), d, x + i);
    });
  } else if (activation == Activation::gelu) {
    each(size, [&](auto d, int64_t i) HWY_ATTR {
      const auto value = hn::LoadU(d, x + i), half = hn::Mul(value, hn::Set(d, 0.5f));
      hn::StoreU(hn::MulAdd(half, erf_of(d, hn::Mul(value, hn::Set(d, 0.70710678f))), half), d, x + i);
    });
  } else if (activation == Activation::silu) {
    each(size, [&](auto d, int64_t i) HWY_ATTR {
      const auto value = hn::LoadU(d, x + i);
      const auto power = hn::Exp(d, hn::Min(hn::Neg(value), hn::Set(d, 88.0f)));
      hn::StoreU(hn::Div(value, hn::Add(hn::Set(d, 1.0f), power)), d, x + i);
    });
  } else {
    // 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
    each(size, [&](auto d, int64_t i) HWY_ATTR {
      const auto value = hn::LoadU(d, x + i);
      const auto u = hn::Mul(hn::Mul(value, hn::Set(d, -1.5957691f)),
                             hn::MulAdd(hn::Mul(value, value), hn::Set(d, 0.044715f), hn::Set(d, 1.0f)));
      hn::StoreU(hn::Div(value, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(u, hn::Set(d, 88.0f))))), d, x + i);
    });
  }
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(KeyScoresAtDistanceFloat);
HWY_EXPORT(KeyScoresAtDistanceBf16);
HWY_EXPORT(KeyScoresOfQueriesFloat);
HWY_EXPORT(KeyScoresOfQueriesBf16);
HWY_EXPORT(KeyScoresOfQueriesInt8);
HWY_EXPORT(WeighValuesOfQueriesFloat);
HWY_EXPORT(WeighValuesOfQueriesBf16);
HWY_EXPORT(WeighValuesOfQueriesInt8);
HWY_EXPORT(CopyBf16);
HWY_EXPORT(DivideToInt8);
HWY_EXPORT(AbcStep);
HWY_EXPORT(WriteRows);
HWY_EXPORT(NormaliseRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(ActivateRow);

template <>
void key_scores_of_queries(const float* q, int64_t queries, const float* k, int64_t count, int64_t width, float* s,
                           int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfQueriesFloat)(q, queries, k, count, width, s, s_stride);
}
template <>
void key_scores_of_queries(const float* q, int64_t queries, const Bf16Bits* k, int64_t count, int64_t width, float* s,
                           int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfQueriesBf16)(q, queries, k, count, width, s, s_stride);
}
template <>
void key_scores_of_queries(const float* q, int64_t queries, const int8_t* k, int64_t count, int64_t width, float* s,
                           int64_t s_stride) {
  HWY_DYNAMIC_DISPATCH(KeyScoresOfQueriesInt8)(q, queries, k, count, width, s, s_stride);
}
template <>
void weigh_values_of_queries(const float* p, int64_t queries, int64_t p_stride, const float* v, int64_t count,
                             int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfQueriesFloat)(p, queries, p_stride, v, count, width, o);
}
template <>
void weigh_values_of_queries(const float* p, int64_t queries, int64_t p_stride, const Bf16Bits* v, int64_t count,
                             int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfQueriesBf16)(p, queries, p_stride, v, count, width, o);
}
template <>
void weigh_values_of_queries(const float* p, int64_t queries, int64_t p_stride, const int8_t* v, int64_t count,
                             int64_t width, float* o) {
  HWY_DYNAMIC_DISPATCH(WeighValuesOfQueriesInt8)(p, queries, p_stride, v, count, width, o);
}
template <>
void key_scores(const float* q, const float* qr, const float* k, const float* r, int64_t count, int64_t width,
                float* s) {
  if (r == nullptr) return key_scores_of_queries(q, 1, k, count, width, s, count);
  HWY_DYNAMIC_DISPATCH(KeyScoresAtDistanceFloat)(q, qr, k, r, count, width, s);
}
template <>
void key_scores(const float* q, const float* qr, const Bf16Bits* k, const Bf16Bits* r, int64_t count, int64_t width,
                float* s) {
  if (r == nullptr) return key_scores_of_queries(q, 1, k, count, width, s, count);
  HWY_DYNAMIC_DISPATCH(KeyScoresAtDistanceBf16)(q, qr, k, r, count, width, s);
}
template <>
void weigh_values(const float* p, const float* v, int64_t count, int64_t width, float* o) {
  weigh_values_of_queries(p, 1, count, v, count, width, o);
}
template <>
void weigh_values(const float* p, const Bf16Bits* v, int64_t count, int64_t width, float* o) {
  weigh_values_of_queries(p, 1, count, v, count, width, o);
}
void copy_row(const float* x, int64_t size, float* to) { std::copy_n(x, size, to); }
void copy_row(const float* x, int64_t size, Bf16Bits* to) { HWY_DYNAMIC_DISPATCH(CopyBf16)(x, size, to); }
void quantise_row(const float* x, int64_t size, int64_t width, int8_t* to) {
  // The bits of numbers without their signs are in the order of the numbers; those of infinity and NaN come last.
  uint32_t most = 0;
  for (int64_t c = 0; c < size; ++c) most = std::max(most, std::bit_cast<uint32_t>(x[c]) & 0x7FFFFFFFu);
  const auto largest = std::bit_cast<float>(most);
  const float exact = std::isfinite(largest) ? largest / 127.0f : NAN;
  Bf16Bits rounded;
  copy_row(&exact, 1, &rounded);
  std::fill_n(to, width, int8_t{0});
  std::memcpy(to + width, &rounded, sizeof rounded);
  const float scale = row_scale(to, width);
  if (scale >= FLT_MIN) HWY_DYNAMIC_DISPATCH(DivideToInt8)(x, size, scale, to);
}
void read_row(const int8_t* row, int64_t size, int64_t width, float* to) {
  const float scale = row_scale(row, width);
  for (int64_t c = 0; c < size; ++c) to[c] = scale * static_cast<float>(row[c]);
}
void abc_step(const AbcSlots& slots, const float* q, const float* k, const float* v, const float* control,
              AbcActivation activation, float eps, float* scratch, float* o) {
  HWY_DYNAMIC_DISPATCH(AbcStep)(slots, q, k, v, control, activation, eps, scratch, o);
}
void write_rows(float* memory, const float* row, const float* keep, const float* write, const float* q, int64_t count,
                int64_t width, float* dots) {
  HWY_DYNAMIC_DISPATCH(WriteRows)(memory, row, keep, write, q, count, width, dots);
}
void normalise_row(const float* x, const float* weight, const float* bias, float eps, int64_t size, float* y) {
  HWY_DYNAMIC_DISPATCH(NormaliseRow)(x, weight, bias, eps, size, y);
}
void rms_normalise_row(const float* x, const float* weight, float eps, int64_t size, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(x, weight, eps, size, y);
}
void activate_row(Activation activation, float* x, int64_t size) {
  HWY_DYNAMIC_DISPATCH(ActivateRow)(activation, x, size);
}

}  // namespace mnemo::ops
#endif
