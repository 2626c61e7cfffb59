#pragma once

#include <cstddef>

#include "base/random.h"

namespace mnemo::data {

/// Uniform in [0, 1), 53 bits.
double draw_uniform(base::Random& random);
double draw_uniform(base::Random& random, double low, double high);
/// True with this probability.
bool draw_chance(base::Random& random, double probability);
/// N(0, 1), with the Box-Muller method.
double draw_normal(base::Random& random);
/// Beta(alpha, alpha), alpha > 0, from two Gamma(alpha) variables (Marsaglia and Tsang 2000).
double draw_beta(base::Random& random, double alpha);

}  // namespace mnemo::data
