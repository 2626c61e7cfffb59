#include "ops/cuda.h"

#include <torch/types.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "ops/cuda/abc_tensors.h"
#include "ops/cuda/attention_tensors.h"
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

enum class Plain { no, all, causal };

/// Whether every query sees every key, or as many queries as keys see what lies on their left: what ATen's own attention has a form for.
Plain plain_form(const KeyRanges& ranges) {
  if (ranges.valid.defined()) return Plain::no;
  const int64_t queries = ranges.queries(), keys = ranges.keys;
  const int32_t *offsets = ranges.offsets.const_data_ptr<int32_t>(), *bounds = ranges.bounds.const_data_ptr<int32_t>();
  bool all = true, causal = queries == keys;
  for (int64_t i = 0; i < queries && (all || causal); ++i) {
    if (offsets[i + 1] - offsets[i] != 1 || bounds[2 * offsets[i]] != 0) return Plain::no;
    const int64_t end = bounds[2 * offsets[i] + 1];
    all = all && end == keys;
    causal = causal && end == i + 1;
  }
  return all ? Plain::all : causal ? Plain::causal : Plain::no;
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
  using Kernels = AttentionKernels<Launch>;
  const c10::DeviceGuard guard(q.device());
  const bool relative = positions.u.defined() || positions.r.defined() || positions.scores.defined();
  const Plain plain = relative ? Plain::no : plain_form(ranges);
  if (plain != Plain::no) return at::scaled_dot_product_attention(q, k, v, {}, 0.0, plain == Plain::causal, scale);
  if (!Kernels::fits(q, v)) return attention_of_any_size(q, k, v, positions, ranges, scale);
  return Kernels::run(AttentionOperands::of(q, k, v, positions, ranges, scale));
}

}  // namespace mnemo::ops::cuda
