#include "ops/grc.h"

#include <torch/types.h>

#include "ops/linear.h"

namespace mnemo::ops {

at::Tensor resample_nearest(const at::Tensor& rows, int64_t length, const at::Tensor& valid) {
  const int64_t time = rows.size(1);
  const auto index_options = rows.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor i = at::arange(length, index_options);
  if (!valid.defined()) return rows.index_select(1, at::div(i * time, length, "floor"));
  const at::Tensor counts = valid.sum(1);                                                      // [B]
  const at::Tensor wanted = at::div(i.unsqueeze(0) * counts.unsqueeze(1), length, "floor");    // [B,N]
  // Real rows first, each in its order: a stable sort of "is padding".
  const at::Tensor order = at::argsort(valid.logical_not().to(at::kByte), /*stable=*/true, 1);  // [B,T]
  const at::Tensor index = order.gather(1, wanted.clamp_max(time - 1));
  return rows.gather(1, index.unsqueeze(-1).expand({-1, -1, rows.size(2)}));
}

namespace {

at::Tensor join(const at::Tensor& cache, const at::Tensor& input, bool authors) {
  return authors ? at::cat({cache, input}, -1) : at::cat({input, cache}, -1);
}

}  // namespace

GrcGateValues grc_gate_values(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors) {
  const auto of_both =
      linear_maps(join(cache, input, authors), {{gates.reset_weight, gates.reset_bias}, {gates.update_weight, gates.update_bias}});
  return {at::sigmoid(of_both[0]), at::sigmoid(of_both[1])};
}

at::Tensor grc_step(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors) {
  const auto [reset, update] = grc_gate_values(cache, input, gates, authors);
  at::Tensor candidate = linear(join(reset * cache, input, authors), gates.candidate_weight, gates.candidate_bias);
  if (authors) {
    candidate = at::layer_norm(at::gelu(candidate), {candidate.size(-1)}, gates.norm_weight, gates.norm_bias, 1e-5);
  }
  return at::lerp(cache, candidate, update);
}

at::Tensor grc_mix(const at::Tensor& m, const at::Tensor& o, const at::Tensor& lambda) {
  const int64_t heads = lambda.size(0);
  const at::Tensor gate = at::sigmoid(lambda).unsqueeze(-1);
  const at::Tensor by_head = o.unflatten(-1, {heads, -1}), memory = m.unflatten(-1, {heads, -1});
  const int64_t mixed = memory.size(-1);
  const auto parts = by_head.split_with_sizes({mixed, by_head.size(-1) - mixed}, -1);
  return at::cat({at::lerp(parts[0], memory, gate), parts[1] * (1 - gate)}, -1).flatten(-2);
}

}  // namespace mnemo::ops
