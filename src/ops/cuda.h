#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"

/// Operations with CUDA kernels of this project; the rest of the library uses ATen operations. Without -DMNEMO_CUDA=ON
/// (without_cuda.cpp) there is no device, and passing a CUDA tensor is an error.
namespace mnemo::ops::cuda {

/// Whether this build supports CUDA.
bool compiled();
/// Number of devices.
int64_t devices();

/// abc_exp_scan (ops/abc_scan.h) for tensors on a device.
AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale);
/// attention (ops/attention.h) for tensors on a device.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale);

/// Operations that a device has recorded once and plays again as one graph: the same kernels on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
  /// Records what `work` launches on the current device, without running it. Everything that it reads and writes must
  /// stay where it is as long as the graph lives.
  static std::unique_ptr<Graph> record(const std::function<void()>& work);
  /// Runs work once as it will be recorded, on a stream beside the usual one and in order with it; on the CPU it just
  /// runs.
  static void run_beside(const std::function<void()>& work, at::Device device);
};

}  // namespace mnemo::ops::cuda
