#include "ops/cuda.h"

#include <torch/types.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

#include "ops/cuda/abc_tensors.h"
#include "ops/cuda/launch.h"

namespace mnemo::ops::cuda {
namespace {

/// By ATen's operations, for sizes without a kernel: with a buffer [Q,K].
at::Tensor attention_of_any_size(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                                 const KeyRanges& ranges, double scale) {
  auto biased = [&](const at::Tensor& bias) { return bias.defined() ? q + bias.unsqueeze(1) : q; };
  const at::Tensor scores = positions.r.defined() ? at::matmul(biased(positions.v), positions.r.permute({1, 2, 0})) : positions.scores;
  return attention_naive(biased(positions.u), k, v, scores, scores.defined() ? RelShift::signed_ : RelShift::none, ranges.mask(), scale);
}

}  // namespace

bool compiled() { return true; }

int64_t devices() { return at::detail::getCUDAHooks().getNumGPUs(); }

AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s, const AbcMemory& memory,
                       double scale) {
  using Kernels = AbcKernels<Launch>;
  const c10::DeviceGuard guard(q.device());
  if (!Kernels::fits(q, v, s)) return abc_causal_naive(q, k, v, s, memory, {}, AbcActivation::exp, 0.0, scale);
  return Kernels::run(q, k, v, s, memory, scale);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions, const KeyRanges& ranges,
                     double scale) {
  const c10::DeviceGuard guard(q.device());
  return attention_of_any_size(q, k, v, positions, ranges, scale);
}

}  // namespace mnemo::ops::cuda
