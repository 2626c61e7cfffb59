#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

namespace mnemo::cli {

/// What this machine reads from memory at best: a plain loop over a buffer that no cache holds, as one stream and as eight, in as many
/// threads as LibTorch has.
class ReadLimit {
 public:
  ReadLimit();
  /// Bytes a second of one pass.
  double measure();

 private:
  std::vector<float> buffer_;
  bool many_streams_ = false;
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

/// Most memory that `call` needs beyond what stands before it, in bytes of pages; nothing where the system does not tell.
std::optional<int64_t> extra_memory(const std::function<void()>& call);

}  // namespace mnemo::cli
