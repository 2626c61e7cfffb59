#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace mnemo::ops {

/// Work that runs again and again on tensors of the same shapes, so that a device can record it (ops/cuda.h). While it
/// runs, no value of a tensor is read on the host: padding is assumed rather than looked for. Constants that the host
/// makes are copied to the device once; the work owns the copies.
class FixedShapes {
 public:
  /// Makes it the work that this thread runs.
  class Scope {
   public:
    explicit Scope(FixedShapes& work);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    FixedShapes* before_;
  };
  /// The work that this thread runs now; null: none.
  static FixedShapes* now();

  /// The copy of a constant on a device. Throws InputError for one of other values than those before, once the
  /// constants are complete.
  at::Tensor there(const at::Tensor& host, at::Device device);
  /// Keeps a tensor that the work reads as long as the work.
  at::Tensor kept(at::Tensor tensor);
  /// From now on every constant has to be among those that there are.
  void complete() { complete_ = true; }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> constants_;  ///< on the host, and there
  std::vector<at::Tensor> kept_;
  bool complete_ = false;
};

/// host.to(device), or in work of fixed shapes the copy that the work owns.
at::Tensor constant_on(const at::Tensor& host, at::Device device);

}  // namespace mnemo::ops
