#include "ops/attention/rotary.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/fixed_shapes.h"

namespace mnemo::ops {
namespace {

double scaled(double frequency, const RotaryScaling& scaling) {
  switch (scaling.type) {
    case RotaryScaling::Type::none:
      return frequency;
    case RotaryScaling::Type::interpolation:
      return frequency / scaling.factor;
    case RotaryScaling::Type::llama3: {
      const double turns = static_cast<double>(scaling.original_max_len) * frequency / (2.0 * std::numbers::pi);
      const double share = std::clamp(
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0);
      return frequency * share + frequency / scaling.factor * (1.0 - share);
    }
  }
  throw base::InternalError("a type of rotary scaling is missing here");
}

/// numbers [T] or [B,T] -> [T,r/2] or [B,1,T,r/2]
at::Tensor angles_of(const at::Tensor& x, const at::Tensor& numbers, const std::vector<double>& frequencies) {
  const auto half = static_cast<int64_t>(frequencies.size());
  base::ensure(x.dim() == 4 && x.size(3) >= 2 * half, "rotary positions: expected rows [B,H,T,d] with d >= r");
  const at::Tensor rates = constant_on(at::tensor(frequencies, at::TensorOptions().dtype(at::kDouble)), x.device());
  const at::Tensor there = numbers.is_cpu() ? constant_on(numbers.to(at::kDouble), x.device())
                                            : numbers.to(x.device(), at::kDouble);
  const at::Tensor angles = there.unsqueeze(-1) * rates;
  return numbers.dim() == 1 ? angles : angles.unsqueeze(1);
}

at::Tensor numbers_from(int64_t first, const at::Tensor& x) { return at::arange(first, first + x.size(2), at::kLong); }

}  // namespace

std::vector<double> rotary_frequencies(int64_t dims, double base, const RotaryScaling& scaling) {
  base::ensure(dims >= 0 && dims % 2 == 0, "rotary positions turn an even number of channels");
  std::vector<double> frequencies(static_cast<size_t>(dims / 2));
  for (size_t k = 0; k < frequencies.size(); ++k)
    frequencies[k] = scaled(std::pow(base, -2.0 * static_cast<double>(k) / static_cast<double>(dims)), scaling);
  return frequencies;
}

at::Tensor rotate(const at::Tensor& x, int64_t first, const std::vector<double>& frequencies, bool inverse) {
  return rotate(x, numbers_from(first, x), frequencies, inverse);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& numbers, const std::vector<double>& frequencies,
                  bool inverse) {
  const auto half = static_cast<int64_t>(frequencies.size());
  const at::Tensor angles = angles_of(x, numbers, frequencies);
  const at::Tensor cosines = angles.cos().to(x.scalar_type());
  const at::Tensor sines = (inverse ? -angles.sin() : angles.sin()).to(x.scalar_type());
  const at::Tensor u = x.narrow(3, 0, half), v = x.narrow(3, half, half);
  std::vector<at::Tensor> parts = {u * cosines - v * sines, v * cosines + u * sines};
  if (x.size(3) > 2 * half) parts.push_back(x.narrow(3, 2 * half, x.size(3) - 2 * half));
  return at::cat(parts, 3);
}

void rotary_angles(int64_t n, const std::vector<double>& frequencies, float* cosines, float* sines) {
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const double angle = static_cast<double>(n) * frequencies[k];
    cosines[k] = static_cast<float>(std::cos(angle));
    sines[k] = static_cast<float>(std::sin(angle));
  }
}

void rotate_row(float* x, const float* cosines, const float* sines, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    const float u = x[k], v = x[k + count];
    x[k] = u * cosines[k] - v * sines[k];
    x[k + count] = v * cosines[k] + u * sines[k];
  }
}

void rotate_columns(float* x, const float* cosines, const float* sines, int64_t count, int64_t width) {
  for (int64_t k = 0; k < count; ++k) {
    float *first = x + k * width, *second = x + (k + count) * width;
    for (int64_t c = 0; c < width; ++c) {
      const float u = first[c], v = second[c];
      first[c] = u * cosines[k] - v * sines[k];
      second[c] = v * cosines[k] + u * sines[k];
    }
  }
}

}  // namespace mnemo::ops
