#pragma once

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

namespace mnemo::bench {

/// The best memory bandwidth of this machine: plain loops over a buffer larger than all caches, with four streams far
/// apart and with eight adjacent ones, on as many threads as LibTorch uses.
class ReadLimit {
 public:
  ReadLimit();
  /// Bytes per second, best of three passes each.
  double measure() const;

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> buffer_;
};

/// The best arithmetic throughput of this machine: the float32 product of two 2,048 x 2,048 matrices.
class ProductLimit {
 public:
  ProductLimit();
  /// Floating-point operations per second of one product.
  double measure();

 private:
  at::Tensor a_, b_, c_;
};

/// Peak memory that `call` adds to what is in use before it, in bytes of pages; nothing if the system does not report
/// it.
std::optional<int64_t> extra_memory(const std::function<void()>& call);

}  // namespace mnemo::bench
