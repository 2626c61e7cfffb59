#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mnemo::metrics {

/// Mean and spread of one value over several seeds.
struct Spread {
  int64_t count = 0;
  double mean = 0, min = 0, max = 0;
  double deviation = 0;  ///< sample standard deviation (n - 1); 0 for one value

  double range() const { return max - min; }
  /// "2.604 ± 0.012" with `digits` decimals; a single value has no spread: "2.604".
  std::string text(int digits = 3) const;
};

/// Throws InputError for no values. A NaN among the values makes all four numbers NaN.
Spread spread(std::span<const double> values);

}  // namespace mnemo::metrics
