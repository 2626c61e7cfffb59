// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls f(vector or one lane, offset) over a row: whole vectors, then the remainder in single lanes.
template <class T, class F>
HWY_INLINE void each(int64_t size, F&& f) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= size; i += step) f(wide, i);
  const hn::CappedTag<T, 1> one;
  for (; i < size; ++i) f(one, i);
}

// e^x; NaN stays NaN. In float: 2^n e^r with n = x / ln 2 rounded to nearest and |r| <= ln 2 / 2, which is less than
// half the work of Highway's version; relative error below 2e-7. Below e^-87.33, where float has no normal numbers
// left, it is 0, and above e^88.37 +inf.
template <class D, class V>
HWY_INLINE V exp_or_nan(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::RebindToUnsigned<D> bits;
    // Adding a number so large that its last bit is worth 1 rounds x; the lowest bits of the sum are then n + 127.
    const auto large = hn::Set(d, 12582912.0f + 127.0f);
    const auto sum = hn::MulAdd(x, hn::Set(d, 1.44269504f), large);
    const auto n = hn::Sub(sum, large);
    // ln 2 in two parts; n times the first is exact.
    const auto r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
    // (e^r - 1 - r) / r^2 by the polynomial from the Cephes library.
    auto y = hn::MulAdd(r, hn::Set(d, 1.9875691500e-4f), hn::Set(d, 1.3981999507e-3f));
    y = hn::MulAdd(r, y, hn::Set(d, 8.3334519073e-3f));
    y = hn::MulAdd(r, y, hn::Set(d, 4.1665795894e-2f));
    y = hn::MulAdd(r, y, hn::Set(d, 1.6666665459e-1f));
    y = hn::MulAdd(r, y, hn::Set(d, 5.0000001201e-1f));
    y = hn::Add(hn::MulAdd(hn::Mul(r, r), y, r), hn::Set(d, 1.0f));
    y = hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, sum))));
    y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), y);
    return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.37f)), hn::Inf(d), y);
  } else {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  }
}

// The remainder of a row after its whole vectors, as one vector.
template <class T>
struct Rest {
  static constexpr size_t kMax = hn::MaxLanes(hn::ScalableTag<T>());
  T numbers[kMax];

  Rest(const T* from, int64_t size, T beyond) {
    std::fill(numbers, numbers + kMax, beyond);
    std::copy(from, from + size, numbers);
  }
  hn::Vec<hn::ScalableTag<T>> load() const { return hn::LoadU(hn::ScalableTag<T>(), numbers); }
  void store(hn::Vec<hn::ScalableTag<T>> x, T* to, int64_t size) {
    hn::StoreU(x, hn::ScalableTag<T>(), numbers);
    std::copy(numbers, numbers + size, to);
  }
};

template <class T>
T AddThenMax(T* s, const T* g, int64_t size) {
  const hn::ScalableTag<T> wide;
  auto most = hn::Set(wide, -std::numeric_limits<T>::infinity());
  T rest = -std::numeric_limits<T>::infinity();
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= size; i += step) {
    auto x = hn::LoadU(wide, s + i);
    if (g != nullptr) {
      x = hn::Add(x, hn::LoadU(wide, g + i));
      hn::StoreU(x, wide, s + i);
    }
    most = hn::IfThenElse(hn::Gt(x, most), x, most);
  }
  for (; i < size; ++i) {
    if (g != nullptr) s[i] += g[i];
    if (s[i] > rest) rest = s[i];
  }
  const T high = hn::GetLane(hn::MaxOfLanes(wide, most));
  return high > rest ? high : rest;
}

template <class T>
T ExpThenSum(T* s, int64_t size, T shift) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto by = hn::Set(wide, shift);
  auto sums = hn::Zero(wide);
  int64_t i = 0;
  for (; i + step <= size; i += step) {
    const auto e = exp_or_nan(wide, hn::Sub(hn::LoadU(wide, s + i), by));
    hn::StoreU(e, wide, s + i);
    sums = hn::Add(sums, e);
  }
  if (i < size) {
    Rest<T> rest(s + i, size - i, -std::numeric_limits<T>::infinity());
    const auto e = exp_or_nan(wide, hn::Sub(rest.load(), by));
    rest.store(e, s + i, size - i);
    sums = hn::Add(sums, e);
  }
  return hn::GetLane(hn::SumOfLanes(wide, sums));
}

template <class T>
void SoftmaxRows(T* s, int64_t rows, int64_t columns, int64_t stride, T* log_sum) {
  const hn::CappedTag<T, kSoftmaxBeyond> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const int64_t whole = columns / step * step;
  const auto is_last = hn::FirstN(wide, static_cast<size_t>(columns - whole));
  const auto lowest = hn::Set(wide, -std::numeric_limits<T>::infinity());
  for (int64_t r = 0; r < rows; ++r, s += stride) {
    const auto last = hn::IfThenElse(is_last, hn::MaskedLoad(is_last, wide, s + whole), lowest);
    auto most = hn::IfThenElse(hn::Gt(last, lowest), last, lowest);  // NaN is ignored
    for (int64_t i = 0; i < whole; i += step) {
      const auto x = hn::LoadU(wide, s + i);
      most = hn::IfThenElse(hn::Gt(x, most), x, most);
    }
    const T high = hn::GetLane(hn::MaxOfLanes(wide, most));
    const auto by = hn::Set(wide, high == -std::numeric_limits<T>::infinity() ? T(0) : high);
    const auto e = exp_or_nan(wide, hn::Sub(last, by));
    auto sums = e;
    for (int64_t i = 0; i < whole; i += step) {
      const auto x = exp_or_nan(wide, hn::Sub(hn::LoadU(wide, s + i), by));
      hn::StoreU(x, wide, s + i);
      sums = hn::Add(sums, x);
    }
    const T sum = hn::GetLane(hn::SumOfLanes(wide, sums));
    const auto factor = hn::Set(wide, sum == T(0) ? T(0) : T(1) / sum);
    for (int64_t i = 0; i < whole; i += step) hn::StoreU(hn::Mul(hn::LoadU(wide, s + i), factor), wide, s + i);
    if (whole < columns) hn::BlendedStore(hn::Mul(e, factor), is_last, wide, s + whole);
    if (log_sum != nullptr) log_sum[r] = sum == T(0) ? std::numeric_limits<T>::infinity() : high + std::log(sum);
  }
}

template <class T>
void AddThenExp(T* s, const T* g, int64_t size, T shift) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto by = hn::Set(wide, shift);
  int64_t i = 0;
  if (g == nullptr) {
    for (; i + step <= size; i += step) hn::StoreU(exp_or_nan(wide, hn::Sub(hn::LoadU(wide, s + i), by)), wide, s + i);
  } else {
    for (; i + step <= size; i += step) {
      const auto x = hn::Add(hn::LoadU(wide, s + i), hn::LoadU(wide, g + i));
      hn::StoreU(exp_or_nan(wide, hn::Sub(x, by)), wide, s + i);
    }
  }
  if (i == size) return;
  Rest<T> rest(s + i, size - i, T(0));
  auto x = rest.load();
  if (g != nullptr) x = hn::Add(x, Rest<T>(g + i, size - i, T(0)).load());
  rest.store(exp_or_nan(wide, hn::Sub(x, by)), s + i, size - i);
}

template <class T>
void SoftmaxGrad(const T* p, T* grad, int64_t size, T mean, T scale) {
  each<T>(size, [&](auto d, int64_t i) {
    const auto centred = hn::Sub(hn::LoadU(d, grad + i), hn::Set(d, mean));
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, p + i), centred), hn::Set(d, scale)), d, grad + i);
  });
}

template <class T>
void Multiply(T* x, int64_t size, T factor) {
  each<T>(size, [&](auto d, int64_t i) { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i); });
}

template <class T>
void SumRows(const T* x, const T* y, T* out, int64_t size) {
  if (y == nullptr) {
    each<T>(size, [&](auto d, int64_t i) { hn::StoreU(hn::LoadU(d, x + i), d, out + i); });
  } else {
    each<T>(size,
            [&](auto d, int64_t i) { hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i); });
  }
}

template <class T>
T ExpOfDifference(const T* x, const T* y, T* out, int64_t size) {
  const hn::ScalableTag<T> wide;
  auto most = hn::Set(wide, -std::numeric_limits<T>::infinity());
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= size; i += step) {
    const auto d = hn::Sub(hn::LoadU(wide, x + i), hn::LoadU(wide, y + i));
    most = hn::IfThenElse(hn::Gt(d, most), d, most);
    hn::StoreU(exp_or_nan(wide, d), wide, out + i);
  }
  if (i < size) {
    Rest<T> rest(x + i, size - i, -std::numeric_limits<T>::infinity());
    const auto d = hn::Sub(rest.load(), Rest<T>(y + i, size - i, T(0)).load());
    most = hn::IfThenElse(hn::Gt(d, most), d, most);
    rest.store(exp_or_nan(wide, d), out + i, size - i);
  }
  return hn::GetLane(hn::MaxOfLanes(wide, most));
}

template <class T>
void Product(const T* x, const T* y, T* out, int64_t size) {
  each<T>(size, [&](auto d, int64_t i) { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i); });
}

template <class T>
void AddProduct(const T* x, const T* y, T* out, int64_t size) {
  each<T>(size, [&](auto d, int64_t i) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), hn::LoadU(d, out + i)), d, out + i);
  });
}

template <class T>
T InnerProduct(const T* x, const T* y, int64_t size) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  auto sums = hn::Zero(wide);
  int64_t i = 0;
  for (; i + step <= size; i += step) sums = hn::MulAdd(hn::LoadU(wide, x + i), hn::LoadU(wide, y + i), sums);
  T sum = hn::GetLane(hn::SumOfLanes(wide, sums));
  for (; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

// Four rows at a time: four memory streams, and x is loaded once for all of them.
template <class T>
void MatrixVector(const T* w, const T* x, const T* start, T* y, int64_t rows, int64_t columns) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const T *w0 = w + i * columns, *w1 = w0 + columns, *w2 = w1 + columns, *w3 = w2 + columns;
    auto s0 = hn::Zero(wide), s1 = hn::Zero(wide), s2 = hn::Zero(wide), s3 = hn::Zero(wide);
    int64_t c = 0;
    for (; c + step <= columns; c += step) {
      const auto v = hn::LoadU(wide, x + c);
      s0 = hn::MulAdd(hn::LoadU(wide, w0 + c), v, s0);
      s1 = hn::MulAdd(hn::LoadU(wide, w1 + c), v, s1);
      s2 = hn::MulAdd(hn::LoadU(wide, w2 + c), v, s2);
      s3 = hn::MulAdd(hn::LoadU(wide, w3 + c), v, s3);
    }
    T sums[4] = {hn::GetLane(hn::SumOfLanes(wide, s0)), hn::GetLane(hn::SumOfLanes(wide, s1)),
                 hn::GetLane(hn::SumOfLanes(wide, s2)), hn::GetLane(hn::SumOfLanes(wide, s3))};
    for (; c < columns; ++c) {
      sums[0] += w0[c] * x[c], sums[1] += w1[c] * x[c], sums[2] += w2[c] * x[c], sums[3] += w3[c] * x[c];
    }
    for (int64_t r = 0; r < 4; ++r) y[i + r] = sums[r] + (start == nullptr ? T(0) : start[i + r]);
  }
  for (; i < rows; ++i) y[i] = InnerProduct(w + i * columns, x, columns) + (start == nullptr ? T(0) : start[i]);
}

template <class T>
void DotRows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* x, int64_t columns, T* y) {
  for (int64_t j = 0; j < count; ++j) y[j] = InnerProduct(rows + index[j] * stride, x, columns);
}

// A vector of the columns at a time, summed in a register.
template <class T>
void WeighRows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* w, int64_t columns,
               T* out) {
  each<T>(columns, [&](auto d, int64_t c) {
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < count; ++j)
      sum = hn::MulAdd(hn::LoadU(d, rows + index[j] * stride + c), hn::Set(d, w[j]), sum);
    hn::StoreU(sum, d, out + c);
  });
}

template <class T>
int64_t PlacesAbove(const T* x, int64_t size, T least, int64_t* places) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto border = hn::Set(wide, least);
  int64_t i = 0, found = 0;
  for (; i + step <= size; i += step) {
    const auto above = hn::Gt(hn::LoadU(wide, x + i), border);
    if (hn::AllFalse(wide, above)) continue;
    uint64_t bits = 0;  // a vector has 64 lanes at most
    hn::StoreMaskBits(wide, above, reinterpret_cast<uint8_t*>(&bits));
    for (; bits != 0; bits &= bits - 1) places[found++] = i + std::countr_zero(bits);
  }
  for (; i < size; ++i) {
    if (x[i] > least) places[found++] = i;
  }
  return found;
}

// Highway's dispatch takes functions, not templates.
#define MNEMO_ROW_KERNELS(T, suffix)                                                                                   \
  T AddThenMax##suffix(T* s, const T* g, int64_t size) { return AddThenMax(s, g, size); }                              \
  T ExpThenSum##suffix(T* s, int64_t size, T shift) { return ExpThenSum(s, size, shift); }                             \
  void SoftmaxRows##suffix(T* s, int64_t rows, int64_t columns, int64_t stride, T* log_sum) {                          \
    SoftmaxRows(s, rows, columns, stride, log_sum);                                                                    \
  }                                                                                                                    \
  void AddThenExp##suffix(T* s, const T* g, int64_t size, T shift) { AddThenExp(s, g, size, shift); }                  \
  void SoftmaxGrad##suffix(const T* p, T* grad, int64_t size, T mean, T scale) {                                       \
    SoftmaxGrad(p, grad, size, mean, scale);                                                                           \
  }                                                                                                                    \
  void Multiply##suffix(T* x, int64_t size, T factor) { Multiply(x, size, factor); }                                   \
  void SumRows##suffix(const T* x, const T* y, T* out, int64_t size) { SumRows(x, y, out, size); }                     \
  T ExpOfDifference##suffix(const T* x, const T* y, T* out, int64_t size) { return ExpOfDifference(x, y, out, size); } \
  void Product##suffix(const T* x, const T* y, T* out, int64_t size) { Product(x, y, out, size); }                     \
  void AddProduct##suffix(const T* x, const T* y, T* out, int64_t size) { AddProduct(x, y, out, size); }               \
  void MatrixVector##suffix(const T* w, const T* x, const T* start, T* y, int64_t rows, int64_t columns) {             \
    MatrixVector(w, x, start, y, rows, columns);                                                                       \
  }                                                                                                                    \
  T InnerProduct##suffix(const T* x, const T* y, int64_t size) { return InnerProduct(x, y, size); }                    \
  void DotRows##suffix(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* x,                 \
                       int64_t columns, T* y) {                                                                        \
    DotRows(rows, stride, index, count, x, columns, y);                                                                \
  }                                                                                                                    \
  void WeighRows##suffix(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* w,               \
                         int64_t columns, T* out) {                                                                    \
    WeighRows(rows, stride, index, count, w, columns, out);                                                            \
  }                                                                                                                    \
  int64_t PlacesAbove##suffix(const T* x, int64_t size, T least, int64_t* places) {                                    \
    return PlacesAbove(x, size, least, places);                                                                        \
  }

MNEMO_ROW_KERNELS(float, F)
MNEMO_ROW_KERNELS(double, D)
#undef MNEMO_ROW_KERNELS

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

#define MNEMO_DISPATCH(T, suffix)                                                                                  \
  HWY_EXPORT(AddThenMax##suffix);                                                                                  \
  HWY_EXPORT(ExpThenSum##suffix);                                                                                  \
  HWY_EXPORT(SoftmaxRows##suffix);                                                                                 \
  HWY_EXPORT(AddThenExp##suffix);                                                                                  \
  HWY_EXPORT(SoftmaxGrad##suffix);                                                                                 \
  HWY_EXPORT(Multiply##suffix);                                                                                    \
  HWY_EXPORT(SumRows##suffix);                                                                                     \
  HWY_EXPORT(ExpOfDifference##suffix);                                                                             \
  HWY_EXPORT(Product##suffix);                                                                                     \
  HWY_EXPORT(AddProduct##suffix);                                                                                  \
  HWY_EXPORT(MatrixVector##suffix);                                                                                \
  HWY_EXPORT(InnerProduct##suffix);                                                                                \
  HWY_EXPORT(DotRows##suffix);                                                                                     \
  HWY_EXPORT(WeighRows##suffix);                                                                                   \
  HWY_EXPORT(PlacesAbove##suffix);                                                                                 \
  template <>                                                                                                      \
  T add_then_max(T* s, const T* g, int64_t size) {                                                                 \
    return HWY_DYNAMIC_DISPATCH(AddThenMax##suffix)(s, g, size);                                                   \
  }                                                                                                                \
  template <>                                                                                                      \
  T exp_then_sum(T* s, int64_t size, T shift) {                                                                    \
    return HWY_DYNAMIC_DISPATCH(ExpThenSum##suffix)(s, size, shift);                                               \
  }                                                                                                                \
  template <>                                                                                                      \
  void softmax_rows(T* s, int64_t rows, int64_t columns, int64_t stride, T* log_sum) {                             \
    HWY_DYNAMIC_DISPATCH(SoftmaxRows##suffix)(s, rows, columns, stride, log_sum);                                  \
  }                                                                                                                \
  template <>                                                                                                      \
  void add_then_exp(T* s, const T* g, int64_t size, T shift) {                                                     \
    HWY_DYNAMIC_DISPATCH(AddThenExp##suffix)(s, g, size, shift);                                                   \
  }                                                                                                                \
  template <>                                                                                                      \
  void softmax_grad(const T* p, T* grad, int64_t size, T mean, T scale) {                                          \
    HWY_DYNAMIC_DISPATCH(SoftmaxGrad##suffix)(p, grad, size, mean, scale);                                         \
  }                                                                                                                \
  template <>                                                                                                      \
  void multiply(T* x, int64_t size, T factor) {                                                                    \
    HWY_DYNAMIC_DISPATCH(Multiply##suffix)(x, size, factor);                                                       \
  }                                                                                                                \
  template <>                                                                                                      \
  void sum_rows(const T* x, const T* y, T* out, int64_t size) {                                                    \
    HWY_DYNAMIC_DISPATCH(SumRows##suffix)(x, y, out, size);                                                        \
  }                                                                                                                \
  template <>                                                                                                      \
  void accumulate(T* x, const T* y, int64_t size) {                                                                \
    HWY_DYNAMIC_DISPATCH(SumRows##suffix)(x, y, x, size);                                                          \
  }                                                                                                                \
  template <>                                                                                                      \
  T exp_of_difference(const T* x, const T* y, T* out, int64_t size) {                                              \
    return HWY_DYNAMIC_DISPATCH(ExpOfDifference##suffix)(x, y, out, size);                                         \
  }                                                                                                                \
  template <>                                                                                                      \
  void product(const T* x, const T* y, T* out, int64_t size) {                                                     \
    HWY_DYNAMIC_DISPATCH(Product##suffix)(x, y, out, size);                                                        \
  }                                                                                                                \
  template <>                                                                                                      \
  void add_product(const T* x, const T* y, T* out, int64_t size) {                                                 \
    HWY_DYNAMIC_DISPATCH(AddProduct##suffix)(x, y, out, size);                                                     \
  }                                                                                                                \
  template <>                                                                                                      \
  void matrix_vector(const T* w, const T* x, const T* start, T* y, int64_t rows, int64_t columns) {                \
    HWY_DYNAMIC_DISPATCH(MatrixVector##suffix)(w, x, start, y, rows, columns);                                     \
  }                                                                                                                \
  template <>                                                                                                      \
  T inner_product(const T* x, const T* y, int64_t size) {                                                          \
    return HWY_DYNAMIC_DISPATCH(InnerProduct##suffix)(x, y, size);                                                 \
  }                                                                                                                \
  template <>                                                                                                      \
  void dot_rows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* x, int64_t columns,   \
                T* y) {                                                                                            \
    HWY_DYNAMIC_DISPATCH(DotRows##suffix)(rows, stride, index, count, x, columns, y);                              \
  }                                                                                                                \
  template <>                                                                                                      \
  void weigh_rows(const T* rows, int64_t stride, const int64_t* index, int64_t count, const T* w, int64_t columns, \
                  T* out) {                                                                                        \
    HWY_DYNAMIC_DISPATCH(WeighRows##suffix)(rows, stride, index, count, w, columns, out);                          \
  }                                                                                                                \
  template <>                                                                                                      \
  int64_t places_above(const T* x, int64_t size, T least, int64_t* places) {                                       \
    return HWY_DYNAMIC_DISPATCH(PlacesAbove##suffix)(x, size, least, places);                                      \
  }

MNEMO_DISPATCH(float, F)
MNEMO_DISPATCH(double, D)
#undef MNEMO_DISPATCH

HWY_EXPORT(TargetName);
const char* row_kernel_target() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace mnemo::ops
#endif
