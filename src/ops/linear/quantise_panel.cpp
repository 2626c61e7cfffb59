// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/quantise_panel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "ops/linear/quantise_panel.h"

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kOutputs = 16;
constexpr int kLanes = HWY_MIN(kOutputs, HWY_LANES(float));
constexpr int kVectors = kOutputs / kLanes;
constexpr int kSteps = 127;
using F = hn::FixedTag<float, kLanes>;
using I = hn::FixedTag<int32_t, kLanes>;

// The largest of each output; false where a number is not finite.
HWY_INLINE bool find_largest(const float* panel, int64_t in, float* largest) {
  const F d;
  hn::Vec<F> most[kVectors], poison[kVectors];
  for (int v = 0; v < kVectors; ++v) most[v] = poison[v] = hn::Zero(d);
  for (int64_t i = 0; i < in; ++i) {
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
      const auto now = hn::LoadU(d, panel + i * kOutputs + v * kLanes);
      most[v] = hn::Max(most[v], hn::Abs(now));
      poison[v] = hn::MulAdd(now, hn::Zero(d), poison[v]);
    }
  }
  alignas(64) float spoilt[kOutputs];
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(most[v], d, largest + v * kLanes);
    hn::StoreU(poison[v], d, spoilt + v * kLanes);
  }
  return std::all_of(spoilt, spoilt + kOutputs, [](float sum) { return sum == 0.0f; });
}

bool Quantise(const float* panel, int64_t in, int8_t* to, float* scales) {
  const F d;
  const I d32;
  alignas(64) float largest[kOutputs], factors[kOutputs];
  if (!find_largest(panel, in, largest)) return false;
  for (int o = 0; o < kOutputs; ++o) {
    scales[o] = largest[o] / kSteps;
    factors[o] = largest[o] > 0.0f ? kSteps / largest[o] : 0.0f;
  }
  const auto low_byte = hn::Set(d32, 0xFF);
  for (int v = 0; v < kVectors; ++v) {
    const auto factor = hn::LoadU(d, factors + v * kLanes);
    const auto rounded = [&](int64_t i) {
      if (i >= in) return hn::Zero(d32);
      return hn::NearestInt(hn::Mul(hn::LoadU(d, panel + i * kOutputs + v * kLanes), factor));
    };
    for (int64_t i = 0; i < in; i += 4) {
      const auto first = hn::And(rounded(i), low_byte), second = hn::ShiftLeft<8>(hn::And(rounded(i + 1), low_byte)),
                 third = hn::ShiftLeft<16>(hn::And(rounded(i + 2), low_byte)),
                 fourth = hn::ShiftLeft<24>(rounded(i + 3));
      hn::StoreU(hn::Or(hn::Or(first, second), hn::Or(third, fourth)), d32,
                 reinterpret_cast<int32_t*>(to + i * kOutputs) + v * kLanes);
    }
  }
  return true;
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mnemo::ops {

HWY_EXPORT(Quantise);

bool quantise_panel(const float* panel, int64_t in, int8_t* to, float* scales) {
  return HWY_DYNAMIC_DISPATCH(Quantise)(panel, in, to, scales);
}

}  // namespace mnemo::ops
#endif
