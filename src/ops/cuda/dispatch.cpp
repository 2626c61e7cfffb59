#include "ops/cuda.h"

#include <torch/types.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "ops/cuda/abc_tensors.h"
#include "ops/cuda/attention_parts.h"
#include "ops/cuda/attention_tensors.h"
#include "ops/cuda/launch.h"
#include "ops/naive/abc.h"

namespace mnemo::ops::cuda {

bool compiled() { return true; }

int64_t devices() { return at::detail::getCUDAHooks().getNumGPUs(); }

AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale) {
  using Kernels = AbcKernels<Launch>;
  const c10::DeviceGuard guard(q.device());
  if (v.numel() > 0 && !Kernels::fits(q, v, s)) {
    // As on the CPU, sums of bfloat16 inputs are in float32, whatever type the memory has.
    const bool narrow = q.scalar_type() == at::kBFloat16;
    const auto wide = [&](const at::Tensor& x) { return narrow ? x.to(at::kFloat) : x; };
    const AbcOutput out = abc_causal_naive(wide(q), wide(k), wide(v), wide(s),
                                           {wide(memory.k), wide(memory.v), wide(memory.z)}, {}, AbcActivation::exp,
                                           0.0, scale);
    const at::ScalarType kept = memory.k.scalar_type();
    return {out.o.to(q.scalar_type()), {out.memory.k.to(kept), out.memory.v.to(kept), out.memory.z.to(kept)}};
  }
  return Kernels::run(q, k, v, s, memory, scale);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale) {
  using Kernels = AttentionKernels<Launch>;
  const c10::DeviceGuard guard(q.device());
  const bool relative = positions.u.defined() || positions.r.defined() || positions.scores.defined();
  const bool much = sees_much(ranges);
  if (much && !relative) return attention_by_content(q, k, v, ranges, scale);
  if ((much && head_fits(q, ranges)) || !Kernels::fits(q, v))
    return attention_of_any_size(q, k, v, positions, ranges, scale);
  return Kernels::run(AttentionOperands::of(q, k, v, positions, ranges, scale));
}

}  // namespace mnemo::ops::cuda
