#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mnemo::metrics {

/// One number over several seeds.
struct Spread {
  int64_t count = 0;
  double mean = 0, min = 0, max = 0;
  double deviation = 0;  ///< standard deviation of a sample (n - 1 below); 0 for one value

  double range() const { return max - min; }
  /// "2.604 ± 0.012" with `digits` behind the point; one value alone has no spread: "2.604".
  std::string text(int digits = 3) const;
};

/// Throws InputError for no values. A NaN among the values makes all four numbers NaN.
Spread spread(std::span<const double> values);

}  // namespace mnemo::metrics
