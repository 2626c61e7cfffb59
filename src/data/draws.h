#pragma once

#include <cstddef>

#include "base/random.h"

namespace mnemo::data {

/// Uniform in [0, 1), 53 bits.
double draw_uniform(base::Random& random);
double draw_uniform(base::Random& random, double low, double high);
/// True with this probability.
bool draw_chance(base::Random& random, double probability);
/// N(0, 1), by Box and Muller.
double draw_normal(base::Random& random);
/// Beta(alpha, alpha), alpha > 0, of two Gamma(alpha) (Marsaglia and Tsang 2000).
double draw_beta(base::Random& random, double alpha);

}  // namespace mnemo::data
