#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"

/// Operations with CUDA kernels of this project; the rest of the library uses ATen operations. Without -DMNEMO_CUDA=ON
/// (without_cuda.cpp) there is no device, and passing a CUDA tensor is an error.
namespace mnemo::ops::cuda {

/// Whether this build supports CUDA.
bool compiled();
/// Number of devices.
int64_t devices();

/// abc_exp_scan (ops/abc/abc_scan.h) for tensors on a device.
AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale);
/// attention (ops/attention/attention.h) for tensors on a device.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale);

/// Runs the work once and records what it launches on the device as a CUDA graph. The result launches all of it again,
/// on the current stream. Throws c10::Error or InputError for work that cannot be recorded, such as one that waits for
/// a result; nothing of it is launched a second time then.
std::function<void()> recorded(at::Device device, const std::function<void()>& work);

}  // namespace mnemo::ops::cuda
