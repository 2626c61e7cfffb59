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

/// Numbers of a group of weights, each start + scale * steps[i] with steps of 0 to 15.
struct FourBitGroup {
  Bf16Bits scale, start;
  std::array<uint8_t, 32> steps{};
};

constexpr int64_t kFourBitGroup = 32;

/// The value after rounding, and its bits.
float bf16_of(float value, Bf16Bits& bits) {
  copy_row(&value, 1, &bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// The group of least squared error among a few scales: the largest weight alone should not decide.
FourBitGroup four_bit_group(const float* weights, int64_t count, bool offset) {
  if (count == 0) return {};
  const auto [low, high] = std::minmax_element(weights, weights + count);
  const float least = *low, most = *high, extreme = -least > most ? least : most;
  FourBitGroup best;
  double best_error = std::numeric_limits<double>::infinity();
  for (const float share : {1.0f, 0.95f, 0.9f, 0.85f}) {
    FourBitGroup group;
    const float scale = bf16_of(offset ? (most - least) * share / 15 : extreme * share / -8, group.scale);
    float start = -8 * scale;
    if (offset) start = bf16_of((least + most) / 2 - (most - least) * share / 2, group.start);
    const float factor = scale != 0.0f ? 1 / scale : 0.0f;
    double error = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float step = std::clamp(std::nearbyint((weights[i] - start) * factor), 0.0f, 15.0f);
      const double miss = static_cast<double>(start) + static_cast<double>(step) * scale - weights[i];
      error += miss * miss;
      group.steps[static_cast<size_t>(i)] = static_cast<uint8_t>(step);
    }
    if (error < best_error) {
      best_error = error;
      best = group;
    }
  }
  return best;
}

constexpr int64_t step_bytes(bool offset) { return kPanel * (offset ? 40 : 36); }

}  // namespace

int64_t four_bit_bytes(int64_t in, bool offset) { return (in + 63) / 64 * step_bytes(offset); }

bool pack_four_bits(const float* panel, int64_t in, bool offset, uint8_t* to) {
  if (!std::all_of(panel, panel + in * kPanel, [](float weight) { return std::isfinite(weight); })) return false;
  std::array<float, kFourBitGroup> weights;
  for (int64_t step = 0; step * 64 < in; ++step, to += step_bytes(offset)) {
    for (int64_t g = 0; g < 2; ++g) {
      const int64_t begin = step * 64 + g * kFourBitGroup, count = std::clamp<int64_t>(in - begin, 0, kFourBitGroup);
      for (int64_t o = 0; o < kPanel; ++o) {
        for (int64_t i = 0; i < count; ++i) weights[static_cast<size_t>(i)] = panel[(begin + i) * kPanel + o];
        const FourBitGroup group = four_bit_group(weights.data(), count, offset);
        for (int64_t i = 0; i < 16; ++i) {
          to[((g * 4 + i / 4) * kPanel + o) * 4 + i % 4] = static_cast<uint8_t>(
              group.steps[static_cast<size_t>(i)] | group.steps[static_cast<size_t>(i + 16)] << 4);
        }
        auto* numbers = reinterpret_cast<Bf16Bits*>(to + 512) + g * kPanel + o;
        numbers[0] = group.scale;
        if (offset) numbers[2 * kPanel] = group.start;
      }
    }
  }
  return true;
}

}  // namespace mnemo::ops
