// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/packed_panels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "ops/linear/packed_panels.h"

// AVX3_DL has VNNI, which Highway 1.0 tests for but does not name to the compiler.
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

// One step: kPerStep inputs of P panels against MR rows. Sums are kept in registers over all steps of a block, which
// has at most kMost inputs. An Input holds kPerInput of them.
struct Float32 {
  using Weight = float;
  using Input = float;
  using Sum = hn::Vec<F>;
  static constexpr int64_t kPerStep = 1, kPerInput = 1, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const Input* x, int64_t stride, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const F d;
    Sum row[P * kVectors];
    HWY_UNROLL(16)
    for (int v = 0; v < P * kVectors; ++v)
      row[v] = hn::LoadU(d, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x[r * stride + k]);
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
  }
};

struct Bf16 {
  using Weight = uint32_t;  // two inputs: the first in the low half
  using Input = float;
  using Sum = hn::Vec<F>;
  static constexpr int64_t kPerStep = 2, kPerInput = 1, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(F()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const Input* x, int64_t stride, int64_t k,
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
      const auto input = hn::Set(d, x[r * stride + 2 * k]);
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      const auto both = hn::LoadU(du, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
      row[v] = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000u)));
    }
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x[r * stride + 2 * k + 1]);
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::MulAdd(input, row[v], sums[r][v]);
    }
  }
};

#if HWY_TARGET != HWY_SCALAR
template <class V>
HWY_INLINE hn::Vec<I> sum_of_pairs(V a, V b) {
  auto high = hn::Zero(I());
  const auto low = hn::ReorderWidenMulAccumulate(I(), a, b, hn::Zero(I()), high);
  return hn::RearrangeToOddPlusEven(low, high);
}
#endif

struct Int8 {
  using Weight = int16_t;  // two inputs: the first in the low half
  using Input = int32_t;   // likewise
  using Sum = hn::Vec<I>;
  static constexpr int64_t kPerStep = 2, kPerInput = 2, kMost = kInputs;
  static Sum start(const Input*, int64_t) { return hn::Zero(I()); }
  template <int MR, int P>
  static HWY_INLINE void step(const Weight* w, int64_t panel, const Input* x, int64_t stride, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const I d32;
#if HWY_TARGET == HWY_SCALAR
    for (int v = 0; v < P * kVectors; ++v) {
      const auto* at = reinterpret_cast<const int8_t*>(w + (v / kVectors) * panel + k * 16 + v % kVectors);
      for (int r = 0; r < MR; ++r) {
        const int32_t both = x[r * stride + k];
        sums[r][v] = hn::Add(sums[r][v],
                             hn::Set(d32, at[0] * static_cast<int16_t>(both & 0xFFFF) + at[1] * (both >> 16)));
      }
    }
#else
    const hn::FixedTag<int16_t, 2 * kLanes> d16;
    hn::Vec<decltype(d16)> row[P * kVectors];
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      const auto* at = reinterpret_cast<const int8_t*>(w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes);
      row[v] = hn::PromoteTo(d16, hn::LoadU(hn::FixedTag<int8_t, 2 * kLanes>(), at));
    }
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::BitCast(d16, hn::Set(d32, x[r * stride + k]));
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
#if MNEMO_VNNI
        // Product, sum of the pair and addition in one instruction; GCC 12 would keep the intrinsic's sums in memory.
        __m512i sum = sums[r][v].raw;
        asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(row[v].raw), "v"(input.raw));
        sums[r][v] = hn::Vec<I>{sum};
#else
        sums[r][v] = hn::Add(sums[r][v], sum_of_pairs(row[v], input));
#endif
      }
    }
#endif
  }
};

struct W8A8 {
  using Weight = int32_t;  // four inputs: the first in the lowest byte
  using Input = int32_t;   // likewise
  using Sum = hn::Vec<I>;
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
  static HWY_INLINE void step(const Weight* w, int64_t panel, const Input* x, int64_t stride, int64_t k,
                              Sum (&sums)[MR][P * kVectors]) {
    const I d;
#if HWY_TARGET == HWY_SCALAR
    for (int v = 0; v < P * kVectors; ++v) {
      const auto* at = reinterpret_cast<const int8_t*>(w + (v / kVectors) * panel + k * 16 + v % kVectors);
      for (int r = 0; r < MR; ++r) {
        const auto* input = reinterpret_cast<const int8_t*>(x + r * stride + k);
        for (int i = 0; i < 4; ++i) sums[r][v] = hn::Add(sums[r][v], hn::Set(d, at[i] * input[i]));
      }
    }
#elif MNEMO_VNNI
    Sum row[P * kVectors];
    const Sum raise = hn::Set(d, static_cast<int32_t>(0x80808080u));
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) row[v] = hn::Xor(hn::LoadU(d, w + v * panel + k * 16), raise);
    HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
      const auto input = hn::Set(d, x[r * stride + k]);
      HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) multiply_add(sums[r][v], row[v], input);
    }
#else
    // First the even inputs of all outputs, then the odd ones, as numbers of 16 bits.
    const hn::FixedTag<int16_t, 2 * kLanes> d16;
    const auto even = [&](auto four) { return hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, four))); };
    const auto odd = [&](auto four) { return hn::ShiftRight<8>(hn::BitCast(d16, four)); };
    const auto half = [&](const auto& part) {
      hn::Vec<decltype(d16)> row[P * kVectors];
      HWY_UNROLL(16)
      for (int v = 0; v < P * kVectors; ++v)
        row[v] = part(hn::LoadU(d, w + (v / kVectors) * panel + k * 16 + (v % kVectors) * kLanes));
      HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
        const auto input = part(hn::Set(d, x[r * stride + k]));
        HWY_UNROLL(16)
        for (int v = 0; v < P * kVectors; ++v) sums[r][v] = hn::Add(sums[r][v], sum_of_pairs(row[v], input));
      }
    };
    half(even);
    half(odd);
#endif
  }
};

HWY_INLINE hn::Vec<F> as_float(hn::Vec<F> sum) { return sum; }
HWY_INLINE hn::Vec<F> as_float(hn::Vec<I> sum) { return hn::ConvertTo(F(), sum); }

// Weights that a tile of rows prefetches for the next step: `lines` cache lines of each of P panels, one every `every`
// steps. With this much computation between two lines, the hardware prefetcher is too late.
struct Ahead {
  const std::byte* from;  // null = nothing
  int64_t panel;          // bytes from one panel to the next
  int64_t lines, every;
};

// A single row does little with a weight: it fetches each panel this many bytes ahead.
constexpr int64_t kAhead = 1024;

// Multiplies MR rows by P panels over inputs [from, from + steps * kPerStep).
template <class K, int MR, int P>
HWY_INLINE void block(const Panels& panels, const PanelInputs& inputs, const typename K::Input* x, int64_t stride,
                      float* y, int64_t y_stride, int64_t panel, int64_t row, int64_t from, int64_t steps,
                      const Ahead& ahead) {
  const F d;
  const int64_t size = (panels.in + K::kPerStep - 1) / K::kPerStep * 16;  // of one panel, in weights
  const auto* w = static_cast<const typename K::Weight*>(panels.weights) + panel * size + from / K::kPerStep * 16;
  typename K::Sum sums[MR][P * kVectors];
  HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < P * kVectors; ++v) sums[r][v] = v == 0 ? K::start(x + r * stride, steps) : sums[r][0];
  }
  int64_t k = 0;
  if (ahead.from != nullptr) {
    for (int64_t line = 0; line < ahead.lines; ++line) {
      HWY_UNROLL(16) for (int p = 0; p < P; ++p) __builtin_prefetch(ahead.from + p * ahead.panel + line * 64, 0, 2);
      const int64_t until = HWY_MIN(steps, k + ahead.every);
      for (; k < until; ++k) K::template step<MR, P>(w, size, x, stride, k, sums);
    }
  }
  for (; k < steps; ++k) {
    if constexpr (MR == 1) {
      HWY_UNROLL(16)
      for (int p = 0; p < P; ++p) __builtin_prefetch(w + p * size + k * 16 + kAhead / sizeof(typename K::Weight), 0, 3);
    }
    K::template step<MR, P>(w, size, x, stride, k, sums);
  }
  HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      const int64_t output = panel * 16 + v * kLanes;
      auto value = as_float(sums[r][v]);
      if (panels.scales != nullptr) {
        value = hn::Mul(value, hn::Mul(hn::LoadU(d, panels.scales + output), hn::Set(d, inputs.scales[row + r])));
      }
      float* to = y + (row + r) * y_stride + output;
      if (output + kLanes <= panels.out) {
        hn::StoreU(hn::Add(value, hn::LoadU(d, from == 0 ? panels.start + output : to)), d, to);
        continue;
      }
      float last[kLanes];
      hn::StoreU(value, d, last);
      for (int64_t i = 0; i < panels.out - output; ++i)
        to[i] = last[i] + (from == 0 ? panels.start[output + i] : to[i]);
    }
  }
}

// Rows and panels per tile: as many sums as fit into the registers with what a step loads.
constexpr int kTileRows = kVectors == 1 ? 12 : 6, kTilePanels = kVectors == 1 ? 2 : 1;

template <int N>
using Count = std::integral_constant<int, N>;

// Calls f(Count<n>()) for n in 1 .. Most.
template <int Most, class Call>
HWY_INLINE void with_count(int64_t n, const Call& f) {
  if constexpr (Most > 1) {
    if (n < Most) return with_count<Most - 1>(n, f);
  }
  f(Count<Most>());
}

template <class K>
HWY_INLINE void run_panels(const Panels& panels, const PanelInputs& inputs, const typename K::Input* x, int64_t stride,
                           float* y, int64_t y_stride, int64_t first, int64_t last) {
  constexpr int64_t kGroup = 4;
  const int64_t in = (panels.in + K::kPerStep - 1) / K::kPerStep * K::kPerStep;
  constexpr int64_t kWhole = HWY_MAX(2, K::kPerStep);
  const int64_t parts = (in + K::kMost - 1) / K::kMost,
                part = ((in + parts - 1) / parts + kWhole - 1) / kWhole * kWhole;  // inputs per part, similar in size
  const int64_t size = in / K::kPerStep * 16 * static_cast<int64_t>(sizeof(typename K::Weight));  // bytes of a panel
  const int64_t tiles = (inputs.rows + kTileRows - 1) / kTileRows;   // of rows, as even as possible
  const int64_t fetching = inputs.rows > 1 ? HWY_MIN(tiles, 8) : 0;  // a single row has kAhead
  for (int64_t group = first; group < last; group += kGroup) {
    const int64_t end = HWY_MIN(last, group + kGroup);
    for (int64_t from = 0; from < in; from += part) {
      const int64_t steps = HWY_MIN(part, in - from) / K::kPerStep;
      // Next: more inputs of these panels, or the next panels.
      const bool here = from + part < in;
      const int64_t next_panel = here ? group : end, next_from = here ? from + part : 0;
      const int64_t lines = next_panel < last
                                ? HWY_MIN(part, in - next_from) / K::kPerStep * 16 * sizeof(typename K::Weight) / 64
                                : 0;
      const auto* next = static_cast<const std::byte*>(panels.weights) + next_panel * size +
                         next_from / K::kPerStep * 16 * sizeof(typename K::Weight);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = inputs.rows * tile / tiles;
        const auto* at = x + row * stride + from / K::kPerInput;
        const int64_t fetched = tile < fetching ? lines * tile / fetching : lines,
                      share = tile < fetching ? lines * (tile + 1) / fetching - fetched : 0;
        with_count<kTileRows>(inputs.rows * (tile + 1) / tiles - row, [&](auto rows) {
          // Few rows leave registers for the sums of more panels.
          constexpr int kRows = rows(), kWide = kRows == 1 ? 4 : kRows == 2 ? 2 : kTilePanels;
          const auto ahead = [&](int64_t panel) {
            const bool some = share > 0 && next_panel + (panel - group) < last;
            return Ahead{some ? next + (panel - group) * size + fetched * 64 : nullptr, size, share, fetching};
          };
          int64_t panel = group;
          for (; panel + kWide <= end; panel += kWide) {
            block<K, kRows, kWide>(panels, inputs, at, stride, y, y_stride, panel, row, from, steps, ahead(panel));
          }
          for (; panel < end; ++panel)
            block<K, kRows, 1>(panels, inputs, at, stride, y, y_stride, panel, row, from, steps, ahead(panel));
        });
      }
    }
  }
}

void PanelsFloat32(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                   int64_t last) {
  run_panels<Float32>(panels, inputs, inputs.x, inputs.stride, y, y_stride, first, last);
}
void PanelsBf16(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  run_panels<Bf16>(panels, inputs, inputs.x, inputs.stride, y, y_stride, first, last);
}
void PanelsInt8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  run_panels<Int8>(panels, inputs, inputs.groups, (panels.in + 1) / 2, y, y_stride, first, last);
}
void PanelsW8A8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  run_panels<W8A8>(panels, inputs, inputs.groups, (panels.in + 3) / 4, y, y_stride, first, last);
}

template <int kSteps, int64_t kGroup, class T>
float quantise(const float* x, int64_t size, T* to) {
  const F d;
  auto most = hn::Zero(d), poison = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto now = hn::LoadU(d, x + i);
    most = hn::Max(most, hn::Abs(now));
    poison = hn::MulAdd(now, hn::Zero(d), poison);
  }
  float largest = hn::GetLane(hn::MaxOfLanes(d, most)), spoilt = hn::GetLane(hn::SumOfLanes(d, poison));
  for (; i < size; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    spoilt += x[i] * 0.0f;
  }
  if (spoilt != 0.0f) {  // a maximum loses a NaN, so the product would be of numbers that were never there
    std::fill_n(to, (size + kGroup - 1) / kGroup * kGroup, T{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = largest / kSteps, factor = largest > 0.0f ? kSteps / largest : 0.0f;
  const hn::FixedTag<T, kLanes> narrow;
  for (i = 0; i + kLanes <= size; i += kLanes) {
    hn::StoreU(hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)))), narrow, to + i);
  }
  for (; i < size; ++i) to[i] = static_cast<T>(std::nearbyint(x[i] * factor));
  for (; i % kGroup != 0; ++i) to[i] = 0;
  return scale;
}
float QuantisePairs(const float* x, int64_t size, int16_t* pairs) { return quantise<16383, 2>(x, size, pairs); }
float QuantiseFours(const float* x, int64_t size, int8_t* fours) { return quantise<127, 4>(x, size, fours); }

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#undef MNEMO_VNNI

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(PanelsFloat32);
HWY_EXPORT(PanelsBf16);
HWY_EXPORT(PanelsInt8);
HWY_EXPORT(PanelsW8A8);
HWY_EXPORT(QuantisePairs);
HWY_EXPORT(QuantiseFours);

void run_panels_float32(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                        int64_t last) {
  HWY_DYNAMIC_DISPATCH(PanelsFloat32)(panels, inputs, y, y_stride, first, last);
}
void run_panels_bf16(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last) {
  HWY_DYNAMIC_DISPATCH(PanelsBf16)(panels, inputs, y, y_stride, first, last);
}
void run_panels_int8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last) {
  HWY_DYNAMIC_DISPATCH(PanelsInt8)(panels, inputs, y, y_stride, first, last);
}
void run_panels_w8a8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last) {
  HWY_DYNAMIC_DISPATCH(PanelsW8A8)(panels, inputs, y, y_stride, first, last);
}
float quantise_row(const float* x, int64_t size, int16_t* pairs) {
  return HWY_DYNAMIC_DISPATCH(QuantisePairs)(x, size, pairs);
}
float quantise_row(const float* x, int64_t size, int8_t* fours) {
  return HWY_DYNAMIC_DISPATCH(QuantiseFours)(x, size, fours);
}

}  // namespace mnemo::ops
#endif
