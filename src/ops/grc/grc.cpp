#include "ops/grc/grc.h"

#include <torch/types.h>

#include "ops/grc/grc_gates.h"
#include "ops/linear/linear.h"

namespace mnemo::ops {

at::Tensor resample_nearest(const at::Tensor& rows, int64_t length, const at::Tensor& valid) {
  const int64_t time = rows.size(1);
  const auto index_options = rows.options().dtype(at::kLong).requires_grad(false);
  if (!valid.defined() && length == time) return rows;
  const at::Tensor i = at::arange(length, index_options);
  if (!valid.defined()) return rows.index_select(1, at::div(i * time, length, "floor"));
  const at::Tensor counts = valid.sum(1);                                                    // [B]
  const at::Tensor wanted = at::div(i.unsqueeze(0) * counts.unsqueeze(1), length, "floor");  // [B,N]
  // Real rows first, in their order: a stable sort by "is padding".
  const at::Tensor order = at::argsort(valid.logical_not().to(at::kByte), /*stable=*/true, 1);  // [B,T]
  const at::Tensor index = order.gather(1, wanted.clamp_max(time - 1));
  return rows.gather(1, index.unsqueeze(-1).expand({-1, -1, rows.size(2)}));
}

namespace {

at::Tensor join(const at::Tensor& cache, const at::Tensor& input, bool authors) {
  return authors ? at::cat({cache, input}, -1) : at::cat({input, cache}, -1);
}

/// Splits a weight that multiplies both into the columns for the input and those for the cache.
struct Halves {
  at::Tensor input, cache;
};

Halves halves(const at::Tensor& weight, bool authors) {
  const int64_t channels = weight.size(0);
  const at::Tensor first = weight.narrow(1, 0, channels), second = weight.narrow(1, channels, channels);
  return authors ? Halves{second, first} : Halves{first, second};
}

at::Tensor through_norm(const at::Tensor& candidate, const GrcGates& gates) {
  return at::layer_norm(at::gelu(candidate), {candidate.size(-1)}, gates.norm_weight, gates.norm_bias, 1e-5);
}

}  // namespace

GrcGateValues grc_gate_values(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors) {
  const auto of_both = linear_maps(join(cache.expand_as(input), input, authors),
                                   {{gates.reset_weight, gates.reset_bias}, {gates.update_weight, gates.update_bias}});
  return {at::sigmoid(of_both[0]), at::sigmoid(of_both[1])};
}

at::Tensor grc_step(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors) {
  const Halves reset = halves(gates.reset_weight, authors), update = halves(gates.update_weight, authors),
               candidate = halves(gates.candidate_weight, authors);
  const auto of_input = linear_maps(
      input,
      {{reset.input, gates.reset_bias}, {update.input, gates.update_bias}, {candidate.input, gates.candidate_bias}});
  const auto of_cache = linear_maps(cache, {{reset.cache, {}}, {update.cache, {}}});
  const at::Tensor kept = linear(gate_keep({of_input[0], of_cache[0]}, cache), candidate.cache, at::Tensor());
  const GateTerms share{of_input[1], of_cache[1]};
  return authors ? gate_blend(share, cache, through_norm(of_input[2] + kept, gates), {})
                 : gate_blend(share, cache, of_input[2], kept);
}

at::Tensor grc_mix(const at::Tensor& m, const at::Tensor& o, const at::Tensor& lambda) {
  return mix_heads(m, o, at::sigmoid(lambda));
}

}  // namespace mnemo::ops
