#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"

/// What runs on a CUDA device by kernels of this project; the rest of the library are ATen's operations. Without
/// -DMNEMO_CUDA=ON (without_cuda.cpp) there is no device, and a tensor on one is the caller's error.
namespace mnemo::ops::cuda {

/// Whether this build has CUDA in it.
bool compiled();
/// How many devices there are.
int64_t devices();

/// abc_exp_scan (ops/abc_scan.h) of tensors on a device.
AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale);
/// attention (ops/attention.h) of tensors on a device.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale);

}  // namespace mnemo::ops::cuda
