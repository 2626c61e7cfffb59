// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/packed_panels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/linear/packed_panels.h"
#include "ops/linear/panel_steps-inl.h"

#if MNEMO_VNNI
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace mnemo::ops::HWY_NAMESPACE {

HWY_INLINE hn::Vec<F> as_float(hn::Vec<F> sum) { return sum; }
HWY_INLINE hn::Vec<F> as_float(hn::Vec<I> sum) { return hn::ConvertTo(F(), sum); }

// Scales a value of int8 or w8a8, and adds it to the outputs from `output` on at y, or to their start.
HWY_INLINE void put(const Panels& panels, const PanelInputs& inputs, int64_t row, int64_t output, hn::Vec<F> value,
                    bool first, float* y) {
  const F d;
  if (panels.scales != nullptr) {
    value = hn::Mul(value, hn::Mul(hn::LoadU(d, panels.scales + output), hn::Set(d, inputs.scales[row])));
  }
  float* to = y + output;
  if (output + kLanes <= panels.out) {
    hn::StoreU(hn::Add(value, hn::LoadU(d, first ? panels.start + output : to)), d, to);
    return;
  }
  float last[kLanes];
  hn::StoreU(value, d, last);
  for (int64_t i = 0; i < panels.out - output; ++i) to[i] = last[i] + (first ? panels.start[output + i] : to[i]);
}

// Weights that a tile of rows prefetches for the next step: `lines` cache lines of each of P panels, one every `every`
// steps. With this much computation between two lines, the hardware prefetcher is too late.
struct Ahead {
  const std::byte* from;  // null = nothing
  int64_t panel;          // bytes from one panel to the next
  int64_t lines, every;
};

// Multiplies MR rows by P panels over inputs [from, from + steps * kPerStep).
template <class K, int MR, int P>
HWY_INLINE void block(const Panels& panels, const PanelInputs& inputs, const typename K::Input* x, int64_t stride,
                      float* y, int64_t y_stride, int64_t panel, int64_t row, int64_t from, int64_t steps,
                      const Ahead& ahead) {
  const int64_t size = (panels.in + K::kPerStep - 1) / K::kPerStep * 16;  // of one panel, in weights
  const auto* w = static_cast<const typename K::Weight*>(panels.weights) + panel * size + from / K::kPerStep * 16;
  const InputRows<typename K::Input, MR> rows(x, stride);
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
      for (; k < until; ++k) K::template step<MR, P>(w, size, rows, k, sums);
    }
  }
  for (; k < steps; ++k) K::template step<MR, P>(w, size, rows, k, sums);
  HWY_UNROLL(16) for (int r = 0; r < MR; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < P * kVectors; ++v) {
      put(panels, inputs, row + r, panel * 16 + v * kLanes, as_float(sums[r][v]), from == 0, y + (row + r) * y_stride);
    }
  }
}

// Rows and panels per tile: as many sums as fit into the registers with what a step loads.
template <class K>
constexpr int kTileRows = kVectors == 1 ? 12
                          : K::kGroups  ? 3
                                        : 6;
template <class K>
constexpr int kTilePanels = kVectors == 1 && !K::kGroups ? 2 : 1;
/// Panels that one row reads at a time: what comes from memory four at a time comes sooner than eight (Zen 4: 30 and 27
/// GB/s), but weights of one byte and less wait for the arithmetic, and eight share more of it.
template <class K>
constexpr int kPanelsOfOneRow = sizeof(typename K::Weight) / K::kPerStep > 1 ? 4 : 8;
/// Few rows leave registers for the sums of more panels.
template <class K>
constexpr int panels_of(int rows) {
  if (kVectors == 1) return rows == 1 ? kPanelsOfOneRow<K> : rows == 2 ? 2 : kTilePanels<K>;
  return rows > 2 ? 1 : (K::kGroups ? 2 : 4) / rows;
}

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
  const int64_t together = inputs.rows == 1 ? 8 : 4;
  const int64_t in = (panels.in + K::kPerStep - 1) / K::kPerStep * K::kPerStep;
  const int64_t part = inputs_of_part(in, K::kPerStep, K::kMost);
  const int64_t size = in / K::kPerStep * 16 * static_cast<int64_t>(sizeof(typename K::Weight));  // bytes of a panel
  const int64_t tiles = (inputs.rows + kTileRows<K> - 1) / kTileRows<K>;  // of rows, as even as possible
  const int64_t fetching = inputs.rows > 1 ? HWY_MIN(tiles, 8) : 0;       // one row only reads: the processor fetches
  for (int64_t group = first; group < last; group += together) {
    const int64_t end = HWY_MIN(last, group + together);
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
        with_count<kTileRows<K>>(inputs.rows * (tile + 1) / tiles - row, [&](auto rows) {
          constexpr int kRows = rows(), kWide = panels_of<K>(kRows);
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

template <class T>
T* kept(std::vector<T>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

void PanelsFloat32(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                   int64_t last) {
  run_panels<Float32>(panels, inputs, inputs.x, inputs.stride, y, y_stride, first, last);
}
void PanelsBf16(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  const int64_t pairs = (panels.in + 1) / 2;
#if MNEMO_VNNI
  if (has_bf16_pairs()) return run_panels<Bf16Pairs>(panels, inputs, inputs.groups, pairs, y, y_stride, first, last);
#endif
  // Widened once: the products of many panels are in float32.
  thread_local std::vector<float> memory;
  const int64_t count = inputs.rows * pairs;
  float* wide = kept(memory, 2 * count);
  for (int64_t i = 0; i < count; ++i) {
    const auto pair = static_cast<uint32_t>(inputs.groups[i]);
    wide[2 * i] = std::bit_cast<float>(pair << 16);
    wide[2 * i + 1] = std::bit_cast<float>(pair & 0xFFFF0000u);
  }
  run_panels<Bf16>(panels, inputs, wide, 2 * pairs, y, y_stride, first, last);
}
void PanelsInt8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  const int64_t in = (panels.in + 3) / 4 * 4, count = inputs.rows * in;
  thread_local std::vector<int32_t> memory;
  int32_t* arranged = kept(memory, count / 2);
  Int8::arrange(reinterpret_cast<const int16_t*>(inputs.groups), count, arranged);
  run_panels<Int8>(panels, inputs, arranged, in / 2, y, y_stride, first, last);
}
void PanelsW8A8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  run_panels<W8A8>(panels, inputs, inputs.groups, (panels.in + 3) / 4, y, y_stride, first, last);
}

void PanelsInt4(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                int64_t last) {
  const auto* x = reinterpret_cast<const FourBitInputs*>(inputs.groups);
  const int64_t stride = (panels.in + 63) / 64;
  if (panels.offsets)
    run_panels<FourBit<true>>(panels, inputs, x, stride, y, y_stride, first, last);
  else
    run_panels<FourBit<false>>(panels, inputs, x, stride, y, y_stride, first, last);
}

void AddSums(const Panels& panels, const PanelInputs& inputs, const PanelSums& sums, float* y, int64_t y_stride) {
  const I d;
  for (int64_t r = 0; r < sums.rows; ++r) {
    for (int64_t o = 0; o < sums.panels * 16; o += kLanes) {
      auto sum = hn::LoadU(d, sums.sums + r * sums.stride + o);
      if (sums.low != nullptr) sum = hn::Add(hn::ShiftLeft<7>(sum), hn::LoadU(d, sums.low + r * sums.stride + o));
      put(panels, inputs, sums.row + r, sums.panel * 16 + o, as_float(sum), sums.first, y + (sums.row + r) * y_stride);
    }
  }
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
float QuantiseWide(const float* x, int64_t size, int16_t* fours) { return quantise<16383, 4>(x, size, fours); }
float QuantiseFours(const float* x, int64_t size, int8_t* fours) { return quantise<127, 4>(x, size, fours); }

void QuantiseGroups(const float* x, int64_t size, FourBitInputs* to) {
  for (int64_t i = 0; i < size; i += 64, ++to) {
    auto* numbers = reinterpret_cast<int8_t*>(to->fours);
    std::fill_n(numbers, 64, int8_t{0});
    for (int g = 0; g < 2; ++g, numbers += 32) {
      const int64_t count = std::clamp<int64_t>(size - i - 32 * g, 0, 32);
      to->scales[g] = quantise<127, 4>(x + i + 32 * g, count, numbers);
      to->sums[g] = 0;
      for (int64_t n = 0; n < count; ++n) to->sums[g] += numbers[n];
    }
  }
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#undef MNEMO_VNNI

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(PanelsFloat32);
HWY_EXPORT(PanelsBf16);
HWY_EXPORT(PanelsInt8);
HWY_EXPORT(PanelsW8A8);
HWY_EXPORT(PanelsInt4);
HWY_EXPORT(AddSums);
HWY_EXPORT(QuantiseGroups);
HWY_EXPORT(QuantiseWide);
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
void run_panels_int4(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last) {
  HWY_DYNAMIC_DISPATCH(PanelsInt4)(panels, inputs, y, y_stride, first, last);
}
void add_sums(const Panels& panels, const PanelInputs& inputs, const PanelSums& sums, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(AddSums)(panels, inputs, sums, y, y_stride);
}
void quantise_groups(const float* x, int64_t size, FourBitInputs* to) {
  HWY_DYNAMIC_DISPATCH(QuantiseGroups)(x, size, to);
}
float quantise_row(const float* x, int64_t size, int16_t* fours) {
  return HWY_DYNAMIC_DISPATCH(QuantiseWide)(x, size, fours);
}
float quantise_row(const float* x, int64_t size, int8_t* fours) {
  return HWY_DYNAMIC_DISPATCH(QuantiseFours)(x, size, fours);
}

}  // namespace mnemo::ops
#endif
