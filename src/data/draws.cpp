#include "data/draws.h"

#include <cmath>
#include <numbers>

namespace mnemo::data {
namespace {

/// Draws the logarithm of a Gamma(alpha) variable: for small alpha, the variable itself may underflow a double.
double draw_log_gamma(base::Random& random, double alpha) {
  if (alpha < 1.0) return draw_log_gamma(random, alpha + 1.0) + std::log(1.0 - draw_uniform(random)) / alpha;
  const double d = alpha - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = draw_normal(random), v = std::pow(1.0 + c * x, 3.0);
    if (v <= 0.0) continue;
    if (std::log(1.0 - draw_uniform(random)) < 0.5 * x * x + d * (1.0 - v + std::log(v))) return std::log(d * v);
  }
}

}  // namespace

double draw_uniform(base::Random& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

double draw_uniform(base::Random& random, double low, double high) { return low + (high - low) * draw_uniform(random); }

bool draw_chance(base::Random& random, double probability) { return draw_uniform(random) < probability; }

double draw_normal(base::Random& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - draw_uniform(random)));
  return radius * std::cos(2.0 * std::numbers::pi * draw_uniform(random));
}

double draw_beta(base::Random& random, double alpha) {
  const double a = draw_log_gamma(random, alpha), b = draw_log_gamma(random, alpha);
  return 1.0 / (1.0 + std::exp(b - a));
}

}  // namespace mnemo::data
