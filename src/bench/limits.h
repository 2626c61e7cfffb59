#pragma once

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

namespace mnemo::bench {

/// What this machine reads from memory at best: plain loops over a buffer that no cache holds, of four streams far
/// apart and of eight near by, in as many threads as LibTorch has.
class ReadLimit {
 public:
  ReadLimit();
  /// Bytes a second of the best of three passes each.
  double measure() const;

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> buffer_;
};

/// What it computes at best: the float32 product of two matrices of 2,048 rows and columns.
class ProductLimit {
 public:
  ProductLimit();
  /// Floating-point operations a second of one product.
  double measure();

 private:
  at::Tensor a_, b_, c_;
};

/// Most memory that `call` needs beyond what stands before it, in bytes of pages; nothing where the system does not
/// tell.
std::optional<int64_t> extra_memory(const std::function<void()>& call);

}  // namespace mnemo::bench
