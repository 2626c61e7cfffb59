#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/numbers.h"

namespace mnemo::test {

using Inputs = std::vector<std::pair<std::string, at::Tensor>>;

struct GradcheckOptions {
  int64_t most_elements = 24;  ///< elements of each input that are changed one by one
  int64_t directions = 2;      ///< random directions in which each input is changed as a whole
  double step = 1e-3;
  double tolerance = 1e-8;  ///< times (1 + the derivative)
};

/// Compares the gradient of the scalar f() with differences of f: (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h, with an
/// error of order h^4. Every input is a leaf that requires a gradient, is read by f each time, and is changed in place.
inline void expect_gradients(const std::function<at::Tensor()>& f, const Inputs& inputs,
                             const GradcheckOptions& options = {}) {
  for (const auto& [name, input] : inputs) at::Tensor(input).mutable_grad() = at::Tensor();
  f().backward();
  const at::NoGradGuard no_grad;
  Numbers numbers(17);
  for (const auto& [name, input] : inputs) {
    const at::Tensor gradient = input.grad().defined() ? input.grad() : at::zeros_like(input);
    ASSERT_TRUE(at::isfinite(gradient).all().item<bool>()) << name;
    const at::Tensor start = input.detach().clone();
    const auto along = [&](const at::Tensor& direction, const std::string& where) {
      const auto at_step = [&](double steps) {
        input.copy_(start + direction * (steps * options.step));
        return f().item<double>();
      };
      const double found = (at_step(-2) - 8 * at_step(-1) + 8 * at_step(1) - at_step(2)) / (12 * options.step);
      const double expected = (gradient * direction).sum().item<double>();
      EXPECT_LE(std::abs(found - expected), options.tolerance * (1 + std::abs(found)))
          << name << where << ": difference " << found << ", gradient " << expected;
    };
    const int64_t stride = std::max<int64_t>(
        1, (input.numel() + options.most_elements - 1) / std::max<int64_t>(1, options.most_elements));
    for (int64_t i = 0; options.most_elements > 0 && i < input.numel(); i += stride) {
      at::Tensor direction = at::zeros_like(start).contiguous();
      direction.view({-1})[i] = 1.0;
      along(direction, fmt::format("[{}]", i));
    }
    for (int64_t direction = 0; direction < options.directions && input.numel() > 0; ++direction) {
      along(numbers.normal(input.sizes()).to(input.device()), fmt::format(", direction {}", direction));
    }
    input.copy_(start);
  }
}

/// A leaf of random values that requires a gradient.
inline at::Tensor leaf(Numbers& numbers, at::IntArrayRef shape, double scale = 1.0) {
  return (numbers.normal(shape) * scale).set_requires_grad(true);
}

}  // namespace mnemo::test
