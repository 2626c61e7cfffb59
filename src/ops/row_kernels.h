#pragma once

#include <cstdint>
#include <limits>

namespace mnemo::ops {

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

/// Loops over one row of values, with the widest vectors that the processor has (float and double).

/// s += g (skipped if g is null); returns the largest value, -inf for an empty row. NaN is ignored.
template <class T>
T add_then_max(T* s, const T* g, int64_t size);

/// s = e^(s - shift); returns the sum. NaN stays NaN.
template <class T>
T exp_then_sum(T* s, int64_t size, T shift);

/// Number of values after the last row that softmax_rows() may read.
inline constexpr int64_t kSoftmaxBeyond = 16;
/// Replaces each row of `columns` values, `stride` apart, by its softmax; a row of -inf becomes zeros, NaN stays NaN.
/// log_sum (may be null): the log of the sum of e^s for each row, +inf for a row of -inf.
template <class T>
void softmax_rows(T* s, int64_t rows, int64_t columns, int64_t stride, T* log_sum);

/// s = e^(s + g - shift), g may be null.
template <class T>
void add_then_exp(T* s, const T* g, int64_t size, T shift);

/// grad = p * (grad - mean) * scale: the gradient of the scores from the gradient of the softmax's probabilities.
template <class T>
void softmax_grad(const T* p, T* grad, int64_t size, T mean, T scale);

/// out = e^(x - y); returns the largest x - y (NaN is ignored).
template <class T>
T exp_of_difference(const T* x, const T* y, T* out, int64_t size);

/// x *= factor
template <class T>
void multiply(T* x, int64_t size, T factor);

/// out = x + y; y may be null.
template <class T>
void sum_rows(const T* x, const T* y, T* out, int64_t size);

/// x += y
template <class T>
void accumulate(T* x, const T* y, int64_t size);

/// out = x * y
template <class T>
void product(const T* x, const T* y, T* out, int64_t size);

/// out += x * y
template <class T>
void add_product(const T* x, const T* y, T* out, int64_t size);

/// sum of x * y
template <class T>
T inner_product(const T* x, const T* y, int64_t size);

/// y_i = row i of w (contiguous rows of `columns` values) . x + start_i; start may be null.
template <class T>
void matrix_vector(const T* w, const T* x, const T* start, T* y, int64_t rows, int64_t columns);

/// y_j = rows[index_j] . x for `count` rows that are `stride` numbers apart.
template <class T>
void dot_rows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* x, int64_t columns, T* y);

/// out = sum_j w_j rows[index_j], likewise.
template <class T>
void weigh_rows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* w, int64_t columns,
                T* out);

/// The indices of the numbers above `least`, ascending; returns how many. A NaN is not above.
template <class T>
int64_t places_above(const T* x, int64_t size, T least, int64_t* places);

/// The instruction set that the loops use, for reports: "AVX2", "AVX3" ...
const char* row_kernel_target();

}  // namespace mnemo::ops
