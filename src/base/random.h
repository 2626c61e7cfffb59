#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace mnemo::base {

/// SplitMix64 (Steele, Lea and Flood 2014). The distributions of the standard library differ between implementations;
/// these results are the same everywhere, and a stream can be recreated from its keys.
class Random {
 public:
  /// A separate stream for each list of keys (seed, split, step, row …).
  Random(std::initializer_list<uint64_t> keys) {
    for (const uint64_t key : keys) state_ = mix(state_ ^ mix(key + kStep));
  }

  uint64_t next() { return mix(state_ += kStep); }

  /// Uniform in [0, bound), bound > 0; exact, by rejection.
  uint64_t below(uint64_t bound) {
    const uint64_t reject = (0 - bound) % bound;  // 2^64 mod bound
    while (true) {
      const uint64_t value = next();
      if (value >= reject) return value % bound;
    }
  }

  /// Fisher-Yates shuffle; with `count`, only the first `count` elements are drawn.
  template <class T>
  void shuffle(std::vector<T>& items, size_t count = SIZE_MAX) {
    for (size_t i = 0; i < items.size() && i < count; ++i) std::swap(items[i], items[i + below(items.size() - i)]);
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t state_ = 0;
};

}  // namespace mnemo::base
