#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/abc/abc.h"

namespace mnemo::ops {

enum class Activation;  // ops/activation.h

// Loops for decoding: one row at a time, on plain memory, using the widest vectors of the processor. Rows of heads are
// `width` values apart, a multiple of kHeadStep, and padded with zeros up to `width`.
inline constexpr int64_t kHeadStep = 16;

/// bfloat16 in memory.
using Bf16Bits = uint16_t;

/// Values from a row of keys or values to the next. A row of int8 is its numbers and then its scale, a bfloat16:
///   x = scale * number,   number = round(x / scale) in -127 .. 127,   scale = max |x| / 127 rounded to bfloat16
/// so that scale * number has no rounding error in float32, and rows made of such products get the same bits.
template <class T>
constexpr int64_t row_pitch(int64_t width) {
  return width + (std::is_same_v<T, int8_t> ? static_cast<int64_t>(sizeof(Bf16Bits)) : 0);
}
inline float row_scale(const int8_t* row, int64_t width) {
  Bf16Bits bits;
  std::memcpy(&bits, row + width, sizeof bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// s_j = q . k_j + qr . r_j for `count` keys. k: rows starting at the first key; r: rows starting at the first key's
/// distance, in DESCENDING order, null = no position term. T: float or Bf16Bits.
template <class T>
void key_scores(const float* q, const float* qr, const T* k, const T* r, int64_t count, int64_t width, float* s);

/// o = sum_j p_j v_j.
template <class T>
void weigh_values(const float* p, const T* v, int64_t count, int64_t width, float* o);

/// key_scores() of several queries over shared keys, read once for up to four queries: q [queries,width],
/// s [queries,s_stride], without a position term. T: also int8_t.
template <class T>
void key_scores_of_queries(const float* q, int64_t queries, const T* k, int64_t count, int64_t width, float* s,
                           int64_t s_stride);

/// weigh_values() of several queries over shared values: p [queries,p_stride], o [queries,width].
template <class T>
void weigh_values_of_queries(const float* p, int64_t queries, int64_t p_stride, const T* v, int64_t count,
                             int64_t width, float* o);

/// Copies values, rounding to nearest.
void copy_row(const float* x, int64_t size, float* to);
void copy_row(const float* x, int64_t size, Bf16Bits* to);

/// Writes a row of int8 [row_pitch(width)] with zeros behind its `size` numbers. The scale of numbers that are not all
/// finite is NaN.
void quantise_row(const float* x, int64_t size, int64_t width, int8_t* to);
/// The first `size` numbers of such a row, times the scale.
void read_row(const int8_t* row, int64_t size, int64_t width, float* to);

/// One head's slots of attention with bounded memory (ops/abc/abc.h): k, v [n,width], z [n].
struct AbcSlots {
  float *k, *v, *z;
  int64_t slots, width;
};

/// Writes a token to the slots, then reads them: one step of abc_causal. control [n]; q already scaled; scratch: 3n
/// numbers.
void abc_step(const AbcSlots& slots, const float* q, const float* k, const float* v, const float* control,
              AbcActivation activation, float eps, float* scratch, float* o);

/// m_n = keep_n m_n + write_n row for `count` rows of memory [count,width]; dots_n = q . m_n afterwards (null: not
/// needed).
void write_rows(float* memory, const float* row, const float* keep, const float* write, const float* q, int64_t count,
                int64_t width, float* dots);

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, biased variance.
void normalise_row(const float* x, const float* weight, const float* bias, float eps, int64_t size, float* y);

/// y = x / sqrt(mean(x^2) + eps) * weight; y may be x. As ops::rms_norm.
void rms_normalise_row(const float* x, const float* weight, float eps, int64_t size, float* y);

/// x = act(x); gelu and silu to 2e-7 of the largest |x|.
void activate_row(Activation activation, float* x, int64_t size);

}  // namespace mnemo::ops
