#include "ops/counter_rng.h"

#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace mnemo::ops {

at::Tensor counter_normal(at::IntArrayRef shape, std::initializer_list<uint64_t> keys) {
  base::Random random(keys);
  const auto uniform = [&] { return static_cast<double>((random.next() >> 11) + 1) * 0x1p-53; };
  at::Tensor numbers = at::empty(shape, at::kDouble);
  double* data = numbers.mutable_data_ptr<double>();
  for (int64_t i = 0; i < numbers.numel(); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(uniform())), angle = 2.0 * std::numbers::pi * uniform();
    data[i] = radius * std::cos(angle);
    if (i + 1 < numbers.numel()) data[i + 1] = radius * std::sin(angle);
  }
  return numbers;
}

}  // namespace mnemo::ops
