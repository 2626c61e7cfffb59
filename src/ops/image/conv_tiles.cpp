// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/image/conv_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/image/conv_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kNear = kTilePoint, kFar = kFarTilePoint, kNear2 = kNear * kNear, kFar2 = kFar * kFar;

// B^T x of six vectors: load(j) -> store(k, vector).
template <class D, class Load, class Store>
HWY_INLINE void InputLine(D d, Load&& load, Store&& store) {
  const auto x1 = load(1), x2 = load(2), x3 = load(3), x4 = load(4);
  const auto near2 = hn::Set(d, kNear2), far2 = hn::Set(d, kFar2), both = hn::Set(d, kNear2 * kFar2),
             sum = hn::Set(d, kNear2 + kFar2);
  const auto near_even = hn::NegMulAdd(far2, x2, x4), far_even = hn::NegMulAdd(near2, x2, x4);
  const auto near_odd = hn::Mul(hn::Set(d, kNear), hn::NegMulAdd(far2, x1, x3)),
             far_odd = hn::Mul(hn::Set(d, kFar), hn::NegMulAdd(near2, x1, x3));
  store(0, hn::MulAdd(both, load(0), hn::NegMulAdd(sum, x2, x4)));
  store(1, hn::Add(near_even, near_odd));
  store(2, hn::Sub(near_even, near_odd));
  store(3, hn::Add(far_even, far_odd));
  store(4, hn::Sub(far_even, far_odd));
  store(5, hn::MulAdd(both, x1, hn::NegMulAdd(sum, x3, load(5))));
}

// A^T x of six vectors.
template <class D, class Load, class Store>
HWY_INLINE void OutputLine(D d, Load&& load, Store&& store) {
  const auto x1 = load(1), x2 = load(2), x3 = load(3), x4 = load(4);
  const auto near_sum = hn::Add(x1, x2), near_rest = hn::Sub(x1, x2), far_sum = hn::Add(x3, x4),
             far_rest = hn::Sub(x3, x4);
  store(0, hn::Add(load(0), hn::Add(near_sum, far_sum)));
  store(1, hn::MulAdd(hn::Set(d, kNear), near_rest, hn::Mul(hn::Set(d, kFar), far_rest)));
  store(2, hn::MulAdd(hn::Set(d, kNear2), near_sum, hn::Mul(hn::Set(d, kFar2), far_sum)));
  store(3, hn::MulAdd(hn::Set(d, kNear2 * kNear), near_rest, hn::MulAdd(hn::Set(d, kFar2 * kFar), far_rest, load(5))));
}

// Calls f(vector or one lane, offset) over the channels.
template <class F>
HWY_INLINE void EachChannel(int64_t channels, F&& f) {
  const hn::ScalableTag<float> wide;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t c = 0;
  for (; c + step <= channels; c += step) f(wide, c);
  const hn::CappedTag<float, 1> one;
  for (; c < channels; ++c) f(one, c);
}

void TileInputs(const float* const* rows, int64_t channels, float* v, int64_t stride) {
  EachChannel(channels, [&](auto d, int64_t c) HWY_ATTR {
    constexpr int64_t kMost = hn::MaxLanes(hn::ScalableTag<float>());
    HWY_ALIGN float middle[kTileProducts * kMost];
    for (int64_t j = 0; j < kTileInputs; ++j)
      InputLine(
          d, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, rows[kTileInputs * i + j] + c); },
          [&](int64_t k, auto x) HWY_ATTR { hn::StoreU(x, d, middle + (kTileInputs * k + j) * kMost); });
    for (int64_t k = 0; k < kTileInputs; ++k)
      InputLine(
          d, [&](int64_t j) HWY_ATTR { return hn::LoadU(d, middle + (kTileInputs * k + j) * kMost); },
          [&](int64_t l, auto x) HWY_ATTR { hn::StoreU(x, d, v + (kTileInputs * k + l) * stride + c); });
  });
}

void TileOutputs(const float* m, int64_t stride, const float* start, int64_t channels, float* const* rows) {
  EachChannel(channels, [&](auto d, int64_t c) HWY_ATTR {
    constexpr int64_t kMost = hn::MaxLanes(hn::ScalableTag<float>());
    HWY_ALIGN float middle[kTileSide * kTileInputs * kMost];
    for (int64_t j = 0; j < kTileInputs; ++j)
      OutputLine(
          d, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, m + (kTileInputs * i + j) * stride + c); },
          [&](int64_t y, auto x) HWY_ATTR { hn::StoreU(x, d, middle + (kTileInputs * y + j) * kMost); });
    const auto first = hn::LoadU(d, start + c);
    for (int64_t y = 0; y < kTileSide; ++y)
      OutputLine(
          d, [&](int64_t j) HWY_ATTR { return hn::LoadU(d, middle + (kTileInputs * y + j) * kMost); },
          [&](int64_t k, auto x) HWY_ATTR { hn::StoreU(hn::Add(x, first), d, rows[kTileSide * y + k] + c); });
  });
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(TileInputs);
HWY_EXPORT(TileOutputs);

void tile_inputs(const float* const* rows, int64_t channels, float* v, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(TileInputs)(rows, channels, v, stride);
}
void tile_outputs(const float* m, int64_t stride, const float* start, int64_t channels, float* const* rows) {
  HWY_DYNAMIC_DISPATCH(TileOutputs)(m, stride, start, channels, rows);
}

}  // namespace mnemo::ops
#endif
