#include "memory/abc_control/mlp.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/require_state.h"
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
  if (causal_) build.attention.attn.reserve_state("k, v, z", {heads_, slots_, 2 * head_dim_ + 1});
  weight_ = build.scope.share("weight", {(options.shared_across_heads ? 1 : heads_) * slots_, build.attention.dim},
                              layers::normal(build.attention.init_std), layers::ParameterKind::memory);
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
    return {full.o, state, {}, full.sums.v, full.sums.k};
  }
  const auto& past = state.as<AbcState>();
  core::require_state("abc", past.k, {call.rows.size(0), heads_, slots_, head_dim_});
  auto [o, memory] = ops::abc_causal(call.q, call.k, call.v, logits, {past.k, past.v, past.z}, call.valid, activation_,
                                     options_.eps, scale_);
  return {o, AbcState{memory.k, memory.v, memory.z}};
}

}  // namespace mnemo::memory
