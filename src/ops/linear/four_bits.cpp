#include "ops/linear/four_bits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_panels.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kFourBitGroup = 32;

/// The value after rounding, and its bits.
float bf16_of(float value, Bf16Bits& bits) {
  copy_row(&value, 1, &bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Numbers of a group of weights of each output of a panel, each start + scale * steps[i] with steps of 0 to 15.
struct FourBitGroups {
  std::array<Bf16Bits, kPanel> scale{}, start{};
  std::array<std::array<uint8_t, kPanel>, kFourBitGroup> steps{};
};

/// The nearest integer, ties to even, of a number of at most 2^22: what is added leaves no bits for a fraction.
int32_t nearest(float number) {
  constexpr float kNoFraction = 1.5f * (1 << 23);
  return static_cast<int32_t>((number + kNoFraction) - kNoFraction);
}

/// The groups of least squared error among a few scales: the largest weight alone should not decide. weights
/// [count,kPanel]. All outputs side by side, so that the compiler computes several at a time.
FourBitGroups four_bit_groups(const float* weights, int64_t count, bool offset) {
  FourBitGroups best;
  if (count == 0) return best;
  std::array<float, kPanel> least, most, scale, start, factor;
  std::copy_n(weights, kPanel, least.begin());
  most = least;
  for (int64_t i = 1; i < count; ++i) {
    for (size_t o = 0; o < kPanel; ++o) least[o] = std::min(least[o], weights[i * kPanel + static_cast<int64_t>(o)]);
    for (size_t o = 0; o < kPanel; ++o) most[o] = std::max(most[o], weights[i * kPanel + static_cast<int64_t>(o)]);
  }
  std::array<double, kPanel> best_error;
  best_error.fill(std::numeric_limits<double>::infinity());
  for (const float share : {1.0f, 0.95f, 0.9f, 0.85f}) {
    FourBitGroups groups;
    for (size_t o = 0; o < kPanel; ++o) {
      const float extreme = -least[o] > most[o] ? least[o] : most[o], width = most[o] - least[o];
      scale[o] = bf16_of(offset ? width * share / 15 : extreme * share / -8, groups.scale[o]);
      start[o] = offset ? bf16_of((least[o] + most[o]) / 2 - width * share / 2, groups.start[o]) : -8 * scale[o];
      // The start's rounding is at most 2^-9 of it and the scale at least 2^-24 / 15, so steps stay below 2^20.
      factor[o] = std::abs(scale[o]) >= std::numeric_limits<float>::min() ? 1 / scale[o] : 0.0f;
    }
    std::array<double, kPanel> error{};
    for (int64_t i = 0; i < count; ++i) {
#pragma omp simd
      for (size_t o = 0; o < kPanel; ++o) {
        const float weight = weights[i * kPanel + static_cast<int64_t>(o)];
        const int32_t step = std::min(std::max(nearest((weight - start[o]) * factor[o]), 0), 15);
        const double miss = static_cast<double>(start[o]) + static_cast<double>(step) * static_cast<double>(scale[o]) -
                            static_cast<double>(weight);
        error[o] += miss * miss;
        groups.steps[static_cast<size_t>(i)][o] = static_cast<uint8_t>(step);
      }
    }
    for (size_t o = 0; o < kPanel; ++o) {
      if (!(error[o] < best_error[o])) continue;
      best_error[o] = error[o];
      best.scale[o] = groups.scale[o];
      best.start[o] = groups.start[o];
      for (size_t i = 0; i < kFourBitGroup; ++i) best.steps[i][o] = groups.steps[i][o];
    }
  }
  return best;
}

constexpr int64_t step_bytes(bool offset) { return kPanel * (offset ? 40 : 36); }

}  // namespace

int64_t four_bit_bytes(int64_t in, bool offset) { return (in + 63) / 64 * step_bytes(offset); }

bool pack_four_bits(const float* panel, int64_t in, bool offset, uint8_t* to) {
  if (!std::all_of(panel, panel + in * kPanel, [](float weight) { return std::isfinite(weight); })) return false;
  for (int64_t step = 0; step * 64 < in; ++step, to += step_bytes(offset)) {
    for (int64_t g = 0; g < 2; ++g) {
      const int64_t begin = step * 64 + g * kFourBitGroup, count = std::clamp<int64_t>(in - begin, 0, kFourBitGroup);
      const FourBitGroups groups = four_bit_groups(panel + begin * kPanel, count, offset);
      for (size_t i = 0; i < 16; ++i) {
        uint8_t* at = to + (g * 4 + static_cast<int64_t>(i) / 4) * kPanel * 4 + i % 4;
        for (size_t o = 0; o < kPanel; ++o)
          at[4 * o] = static_cast<uint8_t>(groups.steps[i][o] | groups.steps[i + 16][o] << 4);
      }
      auto* numbers = reinterpret_cast<Bf16Bits*>(to + 512) + g * kPanel;
      std::copy(groups.scale.begin(), groups.scale.end(), numbers);
      if (offset) std::copy(groups.start.begin(), groups.start.end(), numbers + 2 * kPanel);
    }
  }
  return true;
}

}  // namespace mnemo::ops
