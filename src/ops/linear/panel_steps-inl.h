// The kinds of weights, compiled once per instruction set: what one step multiplies. Included by packed_panels.cpp.
#if defined(MNEMO_PANEL_STEPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MNEMO_PANEL_STEPS_INL_H
#undef MNEMO_PANEL_STEPS_INL_H
#else
#define MNEMO_PANEL_STEPS_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "ops/linear/packed_panels.h"

// AVX3_DL has VNNI, which Highway 1.0 tests for but does not name to the compiler.
#undef MNEMO_VNNI
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#define MNEMO_VNNI 1
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
#define MNEMO_VNNI 0
HWY_BEFORE_NAMESPACE();
#endif
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = HWY_MIN(16, HWY_LANES(float));
constexpr int kVectors = 16 / kLanes;  // per panel
using F = hn::FixedTag<float, kLanes>;
using U = hn::FixedTag<uint32_t, kLanes>;
using I = hn::FixedTag<int32_t, kLanes>;

// Rows of inputs, `stride` apart. A base for every three, whose relation to the others the compiler does not see: it
// would keep an offset for each row, more than there are registers.
template <class Input, int MR>
struct InputRows {
  static constexpr int kTogether = 3;
  const Input* bases[(MR + kTogether - 1) / kTogether];
  int64_t stride;

  InputRows(const Input* x, int64_t between) : stride(between) {
    HWY_UNROLL(16) for (int r = 0; r < MR; r += kTogether) {
      bases[r / kTogether] = x + r * between;
      asm("" : "+r"(bases[r / kTogether]));
    }
  }
  HWY_INLINE const Input& at(int row, int64_t k) const { return bases[row / kTogether][row % kTogether * stride + k]; }
};

// One step: kPerStep inputs of P panels against MR rows. Sums are kept in registers over all steps of a block, which
// has at most kMost inputs. An Input holds kPerInput of them.
struct Float32 {
  using Weight = float;
  using Input = float;
  using Sum = hn::Vec<F>;
  static constexpr bool kGroups = false;
  static constexpr int64_t kPerStep = 1, kPerInput = 1, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const F d;
    Sum row[P * kVectors];
    HWY_UNROLL(16)
    for (int v = 0; v < P * kVectors; ++v)
      row[v] = hn::LoadU(d, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x.at(r, k));
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
  }
};

struct Bf16 {
  using Weight = uint32_t;  // two inputs: the first in the low half
  using Input = float;
  using Sum = hn::Vec<F>;
  static constexpr bool kGroups = false;
  static constexpr int64_t kPerStep = 2, kPerInput = 1, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const F d;
    const U du;
    // First the even inputs of all outputs, then the odd ones, so that the sums of six rows fit into 16 registers.
    Sum row[P * kVectors];
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      row[v] = hn::BitCast(
          d, hn::ShiftLeft<16>(hn::LoadU(du, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes)));
    }
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x.at(r, 2 * k));
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      const auto both = hn::LoadU(du, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
      row[v] = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000u)));
    }
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x.at(r, 2 * k + 1));
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
  }
};

#if MNEMO_VNNI
/// The weights of Bf16 against pairs of inputs: two products and their sum in an instruction of some of these
/// processors (has_bf16_pairs).
struct Bf16Pairs {
  using Weight = uint32_t;
  using Input = int32_t;  // two inputs: the first in the low half
  using Sum = hn::Vec<F>;
  static constexpr bool kGroups = false;
  static constexpr int64_t kPerStep = 2, kPerInput = 2, kMost = 2 * kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    hn::Vec<U> row[P];
    HWY_UNROLL(16) for (int v = 0; v < P; ++v) row[v] = hn::LoadU(U(), w + v * panel + k * 16);
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(I(), x.at(r, k));
      HWY_UNROLL(16) for (int v = 0; v < P; ++v) {
        __m512 sum = sums[r][v].raw;
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(row[v].raw), "v"(input.raw));
        sums[r][v] = Sum{sum};
      }
    }
  }
};

inline bool has_bf16_pairs() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
}
#endif

// Pairs of numbers of 16 bits, the first in the low half of each lane of 32.
#if HWY_TARGET == HWY_SCALAR
using Pairs = hn::Vec<I>;
HWY_INLINE Pairs as_pairs(hn::Vec<I> x) { return x; }
HWY_INLINE hn::Vec<I> sum_of_pairs(Pairs a, Pairs b) {
  const int32_t x = hn::GetLane(a), y = hn::GetLane(b);
  return hn::Set(I(), static_cast<int16_t>(x) * static_cast<int16_t>(y) + (x >> 16) * (y >> 16));
}
HWY_INLINE Pairs odd_bytes(hn::Vec<I> fours) {
  const int32_t x = hn::GetLane(fours);
  return hn::Set(I(), (static_cast<int16_t>(x) >> 8 & 0xFFFF) | (x >> 24) * (1 << 16));
}
HWY_INLINE Pairs even_bytes(hn::Vec<I> fours) {
  return odd_bytes(hn::Set(I(), static_cast<int32_t>(static_cast<uint32_t>(hn::GetLane(fours)) << 8)));
}
#else
using Pairs = hn::Vec<hn::FixedTag<int16_t, 2 * kLanes>>;
HWY_INLINE Pairs as_pairs(hn::Vec<I> x) { return hn::BitCast(hn::FixedTag<int16_t, 2 * kLanes>(), x); }
HWY_INLINE hn::Vec<I> sum_of_pairs(Pairs a, Pairs b) {
  auto high = hn::Zero(I());
  const auto low = hn::ReorderWidenMulAccumulate(I(), a, b, hn::Zero(I()), high);
  return hn::RearrangeToOddPlusEven(low, high);
}
// The first and third byte of four, or the second and fourth.
HWY_INLINE Pairs even_bytes(hn::Vec<I> fours) { return hn::ShiftRight<8>(hn::ShiftLeft<8>(as_pairs(fours))); }
HWY_INLINE Pairs odd_bytes(hn::Vec<I> fours) { return hn::ShiftRight<8>(as_pairs(fours)); }
#endif

HWY_INLINE void add_pairs(hn::Vec<I>& sum, Pairs weights, Pairs inputs) {
#if MNEMO_VNNI
  // Product, sum of the pair and addition in one instruction; GCC 12 would keep the intrinsic's sums in memory.
  __m512i raw = sum.raw;
  asm("vpdpwssd %2, %1, %0" : "+v"(raw) : "v"(weights.raw), "v"(inputs.raw));
  sum = hn::Vec<I>{raw};
#else
  sum = hn::Add(sum, sum_of_pairs(weights, inputs));
#endif
}

// A step of four inputs by pairs: first even_bytes() of the weights, then odd_bytes(). inputs(row, half): theirs.
template <int MR, int P, class Inputs>
HWY_INLINE void add_halves(const int32_t* w, int64_t panel, int64_t k, const Inputs& inputs,
                           hn::Vec<I> (&sums)[MR][P * kVectors]) {
  HWY_UNROLL(2) for (int half = 0; half < 2; ++half) {
    Pairs row[P * kVectors];
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      const auto fours = hn::LoadU(I(), w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
      row[v] = half == 0 ? even_bytes(fours) : odd_bytes(fours);
    }
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const Pairs input = inputs(r, half);
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) add_pairs(sums[r][v], row[v], input);
    }
  }
}

struct W8A8 {
  using Weight = int32_t;  // four inputs: the first in the lowest byte
  using Input = int32_t;   // likewise
  using Sum = hn::Vec<I>;
  static constexpr bool kGroups = false;
  static constexpr int64_t kPerStep = 4, kPerInput = 4, kMost = 2 * kInputs;
  static HWY_INLINE Sum start(const Input* x, int64_t steps) {
    const I d;
#if MNEMO_VNNI
    // A step raises the weights by 128, because the instruction wants one factor without a sign.
    Sum sum = hn::Zero(d);
    const Sum raise = hn::BitCast(d, hn::Set(hn::FixedTag<uint8_t, 64>(), 128));
    for (int64_t k = 0; k < steps; k += kLanes)
      multiply_add(sum, raise, hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(steps - k)), d, x + k));
    return hn::Neg(hn::SumOfLanes(d, sum));
#else
    (void)x, (void)steps;
    return hn::Zero(d);
#endif
  }
#if MNEMO_VNNI
  static HWY_INLINE void multiply_add(Sum& sum, Sum without_sign, Sum with_sign) {
    __m512i raw = sum.raw;
    asm("vpdpbusd %2, %1, %0" : "+v"(raw) : "v"(without_sign.raw), "v"(with_sign.raw));
    sum = Sum{raw};
  }
#endif
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const I d;
#if MNEMO_VNNI
    Sum row[P * kVectors];
    const Sum raise = hn::Set(d, static_cast<int32_t>(0x80808080u));
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) row[v] = hn::Xor(hn::LoadU(d, w + v * panel + k * 16), raise);
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x.at(r, k));
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) multiply_add(sums[r][v], row[v], input);
    }
#else
    add_halves<MR, P>(
        w, panel, k,
        [&](int r, int half) HWY_ATTR {
          const auto fours = hn::Set(d, x.at(r, k));
          return half == 0 ? even_bytes(fours) : odd_bytes(fours);
        },
        sums);
#endif
  }
};

/// Inputs of 15 bits.
struct Int8 {
  using Weight = int32_t;  // four inputs: the first in the lowest byte
  using Input = int32_t;   // two of four inputs, as arrange() has them
  using Sum = hn::Vec<I>;
  static constexpr bool kGroups = false;
  static constexpr int64_t kPerStep = 4, kPerInput = 2, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(I()); }

  /// Puts the first and third of four inputs side by side, then the second and fourth: as even_bytes() and odd_bytes().
  static void arrange(const int16_t* x, int64_t size, Input* to) {
    for (int64_t i = 0; i < size; i += 4, to += 2) {
      to[0] = static_cast<uint16_t>(x[i]) | x[i + 2] * (1 << 16);
      to[1] = static_cast<uint16_t>(x[i + 1]) | x[i + 3] * (1 << 16);
    }
  }

  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    add_halves<MR, P>(
        w, panel, k, [&](int r, int half) HWY_ATTR { return as_pairs(hn::Set(I(), x.at(r, 2 * k + half))); }, sums);
  }
};

/// Weights of four bits in groups of 32 inputs, each with a scale, and with `kOffset` a number added to them.
template <bool kOffset>
struct FourBit {
  struct Weight {
    std::byte bytes[kOffset ? 40 : 36];
  };
  using Input = FourBitInputs;
  using Sum = hn::Vec<F>;
  static constexpr int64_t kPerStep = 64, kPerInput = 64, kMost = 2 * kInputs;
  /// A group's sum of products is exact and is scaled at once, so that every output has two sums.
  static constexpr bool kGroups = true;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }

  static HWY_INLINE Sum number(const std::byte* bits) {
    const hn::FixedTag<uint16_t, kLanes> half;
    return hn::BitCast(F(),
                       hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(half, reinterpret_cast<const uint16_t*>(bits)))));
  }
  /// Adds the products of two fours of inputs, low and high, with the two numbers of each byte.
  static HWY_INLINE void add_products(hn::Vec<I>& sum, hn::Vec<U> both, int32_t low, int32_t high) {
    const I d;
#if HWY_TARGET == HWY_SCALAR
    const uint32_t bits = hn::GetLane(both);
    int32_t more = 0;
    for (int i = 0; i < 32; i += 8)
      more += static_cast<int32_t>(bits >> i & 15) * static_cast<int8_t>(low >> i) +
              static_cast<int32_t>(bits >> (i + 4) & 15) * static_cast<int8_t>(high >> i);
    sum = hn::Add(sum, hn::Set(d, more));
#else
    const U du;
    const auto mask = hn::Set(du, 0x0F0F0F0Fu);
    const auto first = hn::And(both, mask), second = hn::And(hn::ShiftRight<4>(both), mask);
    const auto with_first = hn::Set(d, low), with_second = hn::Set(d, high);
#if MNEMO_VNNI
    W8A8::multiply_add(sum, hn::BitCast(d, first), with_first);
    W8A8::multiply_add(sum, hn::BitCast(d, second), with_second);
#elif HWY_TARGET == HWY_AVX2
    // At most 2 * 2 * 15 * 127, which 16 bits hold.
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(first.raw, with_first.raw),
                                           _mm256_maddubs_epi16(second.raw, with_second.raw));
    sum = hn::Add(sum, hn::Vec<I>{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
#else
    const hn::FixedTag<int16_t, 2 * kLanes> d16;
    const hn::FixedTag<uint16_t, 2 * kLanes> du16;
    const auto add = [&](auto weights, auto inputs) {
      const auto w = hn::BitCast(du16, weights);
      const auto x = hn::BitCast(d16, inputs);
      const auto even = hn::BitCast(d16, hn::And(w, hn::Set(du16, uint16_t{0xFF})));
      const auto odd = hn::BitCast(d16, hn::ShiftRight<8>(w));
      sum = hn::Add(sum, sum_of_pairs(even, hn::ShiftRight<8>(hn::ShiftLeft<8>(x))));
      sum = hn::Add(sum, sum_of_pairs(odd, hn::ShiftRight<8>(x)));
    };
    add(first, with_first);
    add(second, with_second);
#endif
#endif
  }

  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const InputRows<Input, MR>& x, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const F d;
    const auto bytes = [&](int v) { return (w + (v / kVectors) * panel + k * 16)->bytes; };
    HWY_UNROLL(2) for (int g = 0; g < 2; ++g) {
      hn::Vec<I> whole[MR][P * kVectors];
      HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
        const auto start = hn::Set(I(), kOffset ? 0 : -8 * x.at(r, k).sums[g]);
        HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) whole[r][v] = start;
      }
      HWY_UNROLL(4) for (int j = 0; j < 4; ++j) {
        HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
          const auto* at = bytes(v) + g * 256 + j * 64 + (v % kVectors) * kLanes * 4;
          const auto both = hn::LoadU(U(), reinterpret_cast<const uint32_t*>(at));
          HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
            const int32_t* fours = x.at(r, k).fours + g * 8 + j;
            add_products(whole[r][v], both, fours[0], fours[4]);
          }
        }
      }
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
        const auto* at = bytes(v) + 512 + g * 32 + (v % kVectors) * kLanes * 2;
        const auto scale = number(at);
        HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
          const Input& input = x.at(r, k);
          auto value = hn::Mul(hn::ConvertTo(d, whole[r][v]), scale);
          if constexpr (kOffset)
            value = hn::MulAdd(number(at + 64), hn::Set(d, static_cast<float>(input.sums[g])), value);
          sums[r][v] = hn::MulAdd(value, hn::Set(d, input.scales[g]), sums[r][v]);
        }
      }
    }
  }
};

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
