#include "ops/naive/rows.h"

#include <torch/types.h>

namespace mnemo::ops {

at::Tensor rms_norm_naive(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.square().mean(-1, true) + eps).sqrt() * weight;
}

SmoothedLoss label_smoothing_naive(const at::Tensor& logits, const at::Tensor& targets, double epsilon,
                                   int64_t ignore) {
  const int64_t words = logits.size(-1);
  const at::Tensor real = (targets != ignore).unsqueeze(-1);
  const at::Tensor chosen = (at::arange(words, targets.options()) == targets.unsqueeze(-1)).to(logits.scalar_type());
  const at::Tensor losses = at::where(real, -at::log(at::softmax(logits, -1)), at::zeros({}, logits.options()));
  const at::Tensor nll = (losses * chosen).sum(-1);
  if (epsilon == 0.0 || words < 2) return {nll, nll};
  const double other = epsilon / static_cast<double>(words - 1);
  return {nll, (losses * (chosen * (1.0 - epsilon) + (1.0 - chosen) * other)).sum(-1)};
}

at::Tensor feed_forward_naive(const at::Tensor& x, const LinearMap& in, const LinearMap& out) {
  return linear(at::gelu(linear(x, in.weight, in.bias)), out.weight, out.bias);
}

at::Tensor grc_step_naive(const at::Tensor& shared, const at::Tensor& input, const GrcGates& gates, bool authors) {
  const at::Tensor cache = shared.expand_as(input);
  const auto [reset, update] = grc_gate_values(cache, input, gates, authors);
  const at::Tensor kept = reset * cache, both = at::cat({authors ? kept : input, authors ? input : kept}, -1);
  at::Tensor candidate = linear(both, gates.candidate_weight, gates.candidate_bias);
  if (authors)
    candidate = at::layer_norm(at::gelu(candidate), {candidate.size(-1)}, gates.norm_weight, gates.norm_bias, 1e-5);
  return at::lerp(cache, candidate, update);
}

at::Tensor gate_keep_naive(const GateTerms& gate, const at::Tensor& old) {
  return at::sigmoid(gate.input + gate.cache) * old;
}

at::Tensor gate_blend_naive(const GateTerms& gate, const at::Tensor& old, const at::Tensor& fresh,
                            const at::Tensor& more) {
  const at::Tensor share = at::sigmoid(gate.input + gate.cache);
  return share * (more.defined() ? fresh + more : fresh) + (1 - share) * old;
}

at::Tensor mix_heads_naive(const at::Tensor& m, const at::Tensor& o, const at::Tensor& share) {
  const int64_t heads = share.size(0);
  const at::Tensor gate = share.unsqueeze(-1), by_head = o.unflatten(-1, {heads, -1}),
                   memory = m.unflatten(-1, {heads, -1});
  const int64_t mixed = memory.size(-1);
  const auto parts = by_head.split_with_sizes({mixed, by_head.size(-1) - mixed}, -1);
  return at::cat({at::lerp(parts[0], memory, gate), parts[1] * (1 - gate)}, -1).flatten(-2);
}

}  // namespace mnemo::ops
