#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace mnemo::test {

/// Random numbers that depend only on the seed.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}

  /// N(0, 1).
  at::Tensor normal(at::IntArrayRef shape, at::ScalarType dtype = at::kDouble) {
    return at::randn(shape, generator_, at::TensorOptions().dtype(dtype));
  }
  /// 0 .. limit-1.
  at::Tensor tokens(at::IntArrayRef shape, int64_t limit) {
    return at::randint(0, limit, shape, generator_, at::TensorOptions().dtype(at::kLong));
  }
  /// true with the given probability.
  at::Tensor flags(at::IntArrayRef shape, double chance) {
    return at::rand(shape, generator_, at::TensorOptions().dtype(at::kDouble)) < chance;
  }

 private:
  at::Generator generator_;
};

/// Largest absolute difference. Equal infinities do not differ; NaN, and different shapes or types, differ infinitely.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return std::numeric_limits<double>::infinity();
  if (!a.defined()) return 0.0;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0.0;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double worst = at::where(x == y, at::zeros_like(x), (x - y).abs()).max().item<double>();
  return worst <= std::numeric_limits<double>::max() ? worst : std::numeric_limits<double>::infinity();
}

/// Same shape, type and values, bit for bit except for the sign of zero.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) { return difference(a, b) == 0.0; }

inline double largest(const at::Tensor& a) { return a.numel() == 0 ? 0.0 : a.detach().abs().max().item<double>(); }

}  // namespace mnemo::test
