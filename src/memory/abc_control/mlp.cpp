#include "memory/abc_control/mlp.h"

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/require_state.h"
#include "ops/abc/abc_chunks.h"
#include "ops/linear/linear.h"

namespace mnemo::memory {

AbcMlpControl::AbcMlpControl(const Options& options, const AbcControlBuild& build)
    : options_(options),
      activation_(options.activation),
      heads_(build.attention.num_heads),
      slots_(build.num_slots),
      head_dim_(build.attention.head_dim),
      scale_(build.scale),
      causal_(build.attention.causal) {
  base::require(options.tied_kv,
                "ABC: expected control.tied_kv = true (one control serves keys and values), found false");
  base::require(
      !options.gate || causal_,
      "ABC: control.gate forgets what came before, so it requires a causal model; expected false, found true");
  base::require(!options.gate || activation_ == ops::AbcActivation::exp,
                "ABC: control.gate = true requires control.activation = \"exp\", found \"{}\"",
                activation_ == ops::AbcActivation::relu ? "relu" : "sigmoid");
  if (causal_) build.attention.attn.reserve_state("k, v, z", {heads_, slots_, 2 * head_dim_ + 1});
  weight_ = build.scope.share("weight", {(options.shared_across_heads ? 1 : heads_) * slots_, build.attention.dim},
                              layers::normal(build.attention.init_std), layers::ParameterKind::memory);
  if (!options.gate) return;
  const layers::Scope gate = build.scope / "gate";
  gate_weight_ = gate.share("weight", {heads_, build.attention.dim}, layers::normal(build.attention.init_std));
  gate_bias_ = gate.share("bias", {heads_}, layers::constant(0.0), layers::ParameterKind::bias);
}

core::State AbcMlpControl::initial_state(int64_t batch) const {
  if (!causal_) return AbcState{};
  const auto empty = ops::abc_empty(batch, heads_, slots_, head_dim_, activation_,
                                    weight_.options().requires_grad(false));
  return AbcState{empty.k, empty.v, empty.z};
}

AbcAnswer AbcMlpControl::attend(const AbcCall& call, const core::State& state) const {
  const at::Tensor logits = ops::linear(call.rows, weight_, {})
                                .view({call.rows.size(0), call.rows.size(1), options_.shared_across_heads ? 1 : heads_,
                                       slots_})
                                .transpose(1, 2)
                                .expand({-1, heads_, -1, -1});  // [B,H,S,n]
  if (!causal_) {
    const ops::AbcSumsOutput full = ops::abc_full(call.q, call.k, call.v, logits, call.valid, activation_, options_.eps,
                                                  scale_);
    return {full.o, state, {}, full.sums.v, {full.sums.k, full.sums.v}};
  }
  const auto& past = state.as<AbcState>();
  core::require_state("abc", past.k, {call.rows.size(0), heads_, slots_, head_dim_});
  if (gate_weight_.defined() && call.rows.size(1) > 0) return attend_gated(call, logits, past);
  const auto [o, memory] = ops::abc_causal(call.q, call.k, call.v, logits, {past.k, past.v, past.z}, call.valid,
                                           activation_, options_.eps, scale_);
  return {o, AbcState{memory.k, memory.v, memory.z}};
}

AbcAnswer AbcMlpControl::attend_gated(const AbcCall& call, const at::Tensor& logits, const AbcState& past) const {
  const at::ScalarType type = call.q.scalar_type(), kept = past.k.scalar_type();
  const auto wide = [&](const at::Tensor& x) { return type == at::kBFloat16 ? x.to(at::kFloat) : x; };
  const at::Tensor gate = wide(ops::linear(call.rows, gate_weight_, gate_bias_)).transpose(1, 2);  // [B,H,S]
  const at::Tensor log_write = at::log_sigmoid(-gate);
  at::Tensor log_keep = at::log_sigmoid(gate);
  if (call.valid.defined()) log_keep = log_keep.masked_fill(call.valid.logical_not().unsqueeze(1), 0.0);
  ops::AbcMemory memory{wide(past.k), wide(past.v), wide(past.z)};
  std::vector<at::Tensor> outputs;
  for (int64_t begin = 0; begin < gate.size(2); begin += ops::kAbcChunk) {
    const int64_t count = std::min(ops::kAbcChunk, gate.size(2) - begin);
    const auto part = [&](const at::Tensor& x) { return x.narrow(2, begin, count); };
    const at::Tensor forgotten = part(log_keep).cumsum(2);
    const at::Tensor s = part(logits) + (part(log_write) - forgotten).unsqueeze(-1);
    const at::Tensor valid = call.valid.defined() ? call.valid.narrow(1, begin, count) : call.valid;
    ops::AbcOutput out = ops::abc_causal(wide(part(call.q)), wide(part(call.k)), wide(part(call.v)), s, memory, valid,
                                         activation_, options_.eps, scale_);
    outputs.push_back(out.o);
    memory = out.memory;
    memory.z = memory.z + forgotten.select(2, count - 1).unsqueeze(-1);
  }
  return {at::cat(outputs, 2).to(type), AbcState{memory.k.to(kept), memory.v.to(kept), memory.z.to(kept)}};
}

}  // namespace mnemo::memory
