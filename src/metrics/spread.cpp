#include "metrics/spread.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "metrics/sum.h"

namespace mnemo::metrics {

std::string Spread::text(int digits) const {
  return count > 1 ? fmt::format("{:.{}f} ± {:.{}f}", mean, digits, deviation, digits)
                   : fmt::format("{:.{}f}", mean, digits);
}

Spread spread(std::span<const double> values) {
  base::require(!values.empty(), "the spread of no values");
  Spread out;
  out.count = static_cast<int64_t>(values.size());
  if (std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); })) {
    out.mean = out.min = out.max = out.deviation = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  Sum sum;
  for (const double value : values) sum.add(value);
  out.mean = sum.value() / static_cast<double>(values.size());
  out.min = *std::min_element(values.begin(), values.end());
  out.max = *std::max_element(values.begin(), values.end());
  if (values.size() > 1) {
    Sum squares;
    for (const double value : values) squares.add((value - out.mean) * (value - out.mean));
    out.deviation = std::sqrt(squares.value() / static_cast<double>(values.size() - 1));
  }
  return out;
}

}  // namespace mnemo::metrics
