// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/grc/grc_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "ops/grc/grc_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls f(vector tag, offset): whole vectors, then the remainder in vectors of `rest` lanes, a power of two that
// divides the size.
template <class T, size_t rest = 1, class F>
HWY_INLINE void each_gate(int64_t size, F&& f) {
  const hn::ScalableTag<T> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= size; i += step) f(wide, i);
  const hn::CappedTag<T, rest> narrow;
  for (; i < size; i += static_cast<int64_t>(rest)) f(narrow, i);
}

/// sigma(input + cache); e^-|x| cannot overflow. NaN stays NaN.
template <class D, class T>
HWY_INLINE auto sigmoid_of(D d, const GateLogits<T>& gate, int64_t i) {
  const auto x = hn::Add(hn::LoadU(d, gate.input + i), hn::LoadU(d, gate.cache + i)), one = hn::Set(d, T(1));
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto share = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
  return hn::IfThenElse(hn::IsNaN(x), x, share);
}

template <class D, class V, class T>
HWY_INLINE void add_to(D d, V value, T* to) {
  hn::StoreU(hn::Add(hn::LoadU(d, to), value), d, to);
}

template <class T>
void Keep(GateLogits<T> gate, const T* old, T* out, int64_t size) {
  each_gate<T>(
      size, [&](auto d, int64_t i) { hn::StoreU(hn::Mul(sigmoid_of(d, gate, i), hn::LoadU(d, old + i)), d, out + i); });
}

template <class T>
void KeepGrad(GateLogits<T> gate, const T* old, const T* grad, T* logits_grad, T* logits_sum, T* old_grad,
              int64_t size) {
  each_gate<T>(size, [&](auto d, int64_t i) {
    const auto s = sigmoid_of(d, gate, i), g = hn::LoadU(d, grad + i), by_gate = hn::Mul(g, s);
    const auto by_logits = hn::Mul(hn::Mul(by_gate, hn::Sub(hn::Set(d, T(1)), s)), hn::LoadU(d, old + i));
    hn::StoreU(by_logits, d, logits_grad + i);
    if (logits_sum != nullptr) add_to(d, by_logits, logits_sum + i);
    if (old_grad != nullptr) add_to(d, by_gate, old_grad + i);
  });
}

template <class D, class T>
HWY_INLINE auto candidate_of(D d, const T* fresh, const T* more, int64_t i) {
  const auto x = hn::LoadU(d, fresh + i);
  return more == nullptr ? x : hn::Add(x, hn::LoadU(d, more + i));
}

template <class T>
void Blend(GateLogits<T> gate, const T* old, const T* fresh, const T* more, T* out, int64_t size) {
  each_gate<T>(size, [&](auto d, int64_t i) {
    const auto s = sigmoid_of(d, gate, i), rest = hn::Sub(hn::Set(d, T(1)), s);
    hn::StoreU(hn::MulAdd(s, candidate_of(d, fresh, more, i), hn::Mul(rest, hn::LoadU(d, old + i))), d, out + i);
  });
}

template <class T>
void BlendGrad(GateLogits<T> gate, const T* old, const T* fresh, const T* more, const T* grad, T* logits_grad,
               T* logits_sum, T* fresh_grad, T* old_grad, int64_t size) {
  each_gate<T>(size, [&](auto d, int64_t i) {
    const auto s = sigmoid_of(d, gate, i), rest = hn::Sub(hn::Set(d, T(1)), s), g = hn::LoadU(d, grad + i),
               by_fresh = hn::Mul(g, s);
    const auto change = hn::Sub(candidate_of(d, fresh, more, i), hn::LoadU(d, old + i));
    const auto by_logits = hn::Mul(hn::Mul(by_fresh, rest), change);
    hn::StoreU(by_fresh, d, fresh_grad + i);
    hn::StoreU(by_logits, d, logits_grad + i);
    if (logits_sum != nullptr) add_to(d, by_logits, logits_sum + i);
    if (old_grad != nullptr) add_to(d, hn::Mul(g, rest), old_grad + i);
  });
}

template <class T>
void Mix(const T* m, const T* o, T share, T* y, int64_t narrow, int64_t width) {
  const T rest = T(1) - share;
  each_gate<T>(narrow, [&](auto d, int64_t i) {
    hn::StoreU(hn::MulAdd(hn::Set(d, share), hn::LoadU(d, m + i), hn::Mul(hn::Set(d, rest), hn::LoadU(d, o + i))), d,
               y + i);
  });
  each_gate<T>(width - narrow, [&](auto d, int64_t i) {
    hn::StoreU(hn::Mul(hn::Set(d, rest), hn::LoadU(d, o + narrow + i)), d, y + narrow + i);
  });
}

template <class T>
T MixGrad(const T* m, const T* o, const T* grad, T share, T* m_grad, T* o_grad, int64_t narrow, int64_t width) {
  const hn::ScalableTag<T> wide;
  const T rest = T(1) - share;
  auto sums = hn::Zero(wide);
  T sum = 0;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto run = [&](auto d, int64_t i, bool in_memory) {
    const auto g = hn::LoadU(d, grad + i), x = hn::LoadU(d, o + i);
    hn::StoreU(hn::Mul(g, hn::Set(d, rest)), d, o_grad + i);
    if (!in_memory) return hn::Neg(hn::Mul(g, x));
    hn::StoreU(hn::Mul(g, hn::Set(d, share)), d, m_grad + i);
    return hn::Mul(g, hn::Sub(hn::LoadU(d, m + i), x));
  };
  const hn::CappedTag<T, 1> one;
  int64_t i = 0;
  for (const int64_t end : {narrow, width}) {
    for (; i + step <= end; i += step) sums = hn::Add(sums, run(wide, i, end == narrow));
    for (; i < end; ++i) sum += hn::GetLane(run(one, i, end == narrow));
  }
  return sum + hn::GetLane(hn::SumOfLanes(wide, sums));
}

// The vector of x at i with the two elements of each pair swapped; a single lane takes the other element.
template <class D, class T>
HWY_INLINE hn::Vec<D> changed_over(D d, const T* x, int64_t i) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, x[i ^ 1]);
#else
  return hn::Reverse2(d, hn::LoadU(d, x + i));
#endif
}

constexpr size_t kPairLanes = HWY_TARGET == HWY_SCALAR ? 1 : 2;

template <class T>
void PairTaps(const T* const* x, const T* const* own, const T* const* other, int64_t taps, const T* start, T* out,
              int64_t size) {
  each_gate<T, kPairLanes>(size, [&](auto d, int64_t i) {
    auto sum = start == nullptr ? hn::Zero(d) : hn::LoadU(d, start + i), more = hn::Zero(d);
    for (int64_t tap = 0; tap < taps; ++tap) {
      sum = hn::MulAdd(hn::LoadU(d, x[tap] + i), hn::LoadU(d, own[tap] + i), sum);
      more = hn::MulAdd(changed_over(d, x[tap], i), hn::LoadU(d, other[tap] + i), more);
    }
    hn::StoreU(hn::Add(sum, more), d, out + i);
  });
}

template <class T>
void PairTapsGrad(const T* const* x, const T* grad, T* const* own, T* const* other, int64_t taps, int64_t size) {
  each_gate<T, kPairLanes>(size, [&](auto d, int64_t i) {
    const auto g = hn::LoadU(d, grad + i);
    for (int64_t tap = 0; tap < taps; ++tap) {
      hn::StoreU(hn::MulAdd(g, hn::LoadU(d, x[tap] + i), hn::LoadU(d, own[tap] + i)), d, own[tap] + i);
      hn::StoreU(hn::MulAdd(g, changed_over(d, x[tap], i), hn::LoadU(d, other[tap] + i)), d, other[tap] + i);
    }
  });
}

#define MNEMO_GRC_KERNELS(T, suffix)                                                                                   \
  void Keep##suffix(GateLogits<T> gate, const T* old, T* out, int64_t size) { Keep(gate, old, out, size); }            \
  void KeepGrad##suffix(GateLogits<T> gate, const T* old, const T* grad, T* logits, T* sum, T* to_old, int64_t size) { \
    KeepGrad(gate, old, grad, logits, sum, to_old, size);                                                              \
  }                                                                                                                    \
  void Blend##suffix(GateLogits<T> gate, const T* old, const T* fresh, const T* more, T* out, int64_t size) {          \
    Blend(gate, old, fresh, more, out, size);                                                                          \
  }                                                                                                                    \
  void BlendGrad##suffix(GateLogits<T> gate, const T* old, const T* fresh, const T* more, const T* grad, T* logits,    \
                         T* sum, T* to_fresh, T* to_old, int64_t size) {                                               \
    BlendGrad(gate, old, fresh, more, grad, logits, sum, to_fresh, to_old, size);                                      \
  }                                                                                                                    \
  void Mix##suffix(const T* m, const T* o, T share, T* y, int64_t narrow, int64_t width) {                             \
    Mix(m, o, share, y, narrow, width);                                                                                \
  }                                                                                                                    \
  T MixGrad##suffix(const T* m, const T* o, const T* grad, T share, T* to_m, T* to_o, int64_t narrow, int64_t width) { \
    return MixGrad(m, o, grad, share, to_m, to_o, narrow, width);                                                      \
  }                                                                                                                    \
  void PairTaps##suffix(const T* const* x, const T* const* own, const T* const* other, int64_t taps, const T* start,   \
                        T* out, int64_t size) {                                                                        \
    PairTaps(x, own, other, taps, start, out, size);                                                                   \
  }                                                                                                                    \
  void PairTapsGrad##suffix(const T* const* x, const T* grad, T* const* own, T* const* other, int64_t taps,            \
                            int64_t size) {                                                                            \
    PairTapsGrad(x, grad, own, other, taps, size);                                                                     \
  }

MNEMO_GRC_KERNELS(float, F)
MNEMO_GRC_KERNELS(double, D)
#undef MNEMO_GRC_KERNELS

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

#define MNEMO_DISPATCH(T, suffix)                                                                                     \
  HWY_EXPORT(Keep##suffix);                                                                                           \
  HWY_EXPORT(KeepGrad##suffix);                                                                                       \
  HWY_EXPORT(Blend##suffix);                                                                                          \
  HWY_EXPORT(BlendGrad##suffix);                                                                                      \
  HWY_EXPORT(Mix##suffix);                                                                                            \
  HWY_EXPORT(MixGrad##suffix);                                                                                        \
  HWY_EXPORT(PairTaps##suffix);                                                                                       \
  HWY_EXPORT(PairTapsGrad##suffix);                                                                                   \
  template <>                                                                                                         \
  void gate_keep(GateLogits<T> gate, const T* old, T* out, int64_t size) {                                            \
    HWY_DYNAMIC_DISPATCH(Keep##suffix)(gate, old, out, size);                                                         \
  }                                                                                                                   \
  template <>                                                                                                         \
  void gate_keep_grad(GateLogits<T> gate, const T* old, const T* grad, T* logits, T* sum, T* to_old, int64_t size) {  \
    HWY_DYNAMIC_DISPATCH(KeepGrad##suffix)(gate, old, grad, logits, sum, to_old, size);                               \
  }                                                                                                                   \
  template <>                                                                                                         \
  void gate_blend(GateLogits<T> gate, const T* old, const T* fresh, const T* more, T* out, int64_t size) {            \
    HWY_DYNAMIC_DISPATCH(Blend##suffix)(gate, old, fresh, more, out, size);                                           \
  }                                                                                                                   \
  template <>                                                                                                         \
  void gate_blend_grad(GateLogits<T> gate, const T* old, const T* fresh, const T* more, const T* grad, T* logits,     \
                       T* sum, T* to_fresh, T* to_old, int64_t size) {                                                \
    HWY_DYNAMIC_DISPATCH(BlendGrad##suffix)(gate, old, fresh, more, grad, logits, sum, to_fresh, to_old, size);       \
  }                                                                                                                   \
  template <>                                                                                                         \
  void mix_head(const T* m, const T* o, T share, T* y, int64_t narrow, int64_t width) {                               \
    HWY_DYNAMIC_DISPATCH(Mix##suffix)(m, o, share, y, narrow, width);                                                 \
  }                                                                                                                   \
  template <>                                                                                                         \
  T mix_head_grad(const T* m, const T* o, const T* grad, T share, T* to_m, T* to_o, int64_t narrow, int64_t width) {  \
    return HWY_DYNAMIC_DISPATCH(MixGrad##suffix)(m, o, grad, share, to_m, to_o, narrow, width);                       \
  }                                                                                                                   \
  template <>                                                                                                         \
  void pair_taps(const T* const* x, const T* const* own, const T* const* other, int64_t taps, const T* start, T* out, \
                 int64_t size) {                                                                                      \
    HWY_DYNAMIC_DISPATCH(PairTaps##suffix)(x, own, other, taps, start, out, size);                                    \
  }                                                                                                                   \
  template <>                                                                                                         \
  void pair_taps_grad(const T* const* x, const T* grad, T* const* own, T* const* other, int64_t taps, int64_t size) { \
    HWY_DYNAMIC_DISPATCH(PairTapsGrad##suffix)(x, grad, own, other, taps, size);                                      \
  }

MNEMO_DISPATCH(float, F)
MNEMO_DISPATCH(double, D)
#undef MNEMO_DISPATCH

}  // namespace mnemo::ops
#endif
