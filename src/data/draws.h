#pragma once

#include <cstddef>

#include "data/random.h"

namespace mnemo::data {

/// Uniform in [0, 1), 53 bits.
double draw_uniform(Random& random);
double draw_uniform(Random& random, double low, double high);
/// True with this probability.
bool draw_chance(Random& random, double probability);
/// N(0, 1), by Box and Muller.
double draw_normal(Random& random);
/// Beta(alpha, alpha), alpha > 0, of two Gamma(alpha) (Marsaglia and Tsang 2000).
double draw_beta(Random& random, double alpha);

}  // namespace mnemo::data
