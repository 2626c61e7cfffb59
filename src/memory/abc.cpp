#include "memory/abc.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "memory/require_state.h"
#include "ops/linear.h"

namespace mnemo::memory {
namespace {

ops::AbcActivation activation_of(const std::string& name) {
  if (name == "relu") return ops::AbcActivation::relu;
  return name == "sigmoid" ? ops::AbcActivation::sigmoid : ops::AbcActivation::exp;
}

/// Which keys are real [B,S]; undefined = all. ABC reads slots, not keys: no other rule than causal can be honoured.
at::Tensor key_validity(const core::AttendTable& table, bool causal) {
  base::ensure(causal ? table.plain_causal() : table.open(),
               "ABC attends through its slots: the table must be {} throughout", causal ? "causal" : "open");
  const at::Tensor& valid = table.valid();
  if (!valid.defined() || table.is_cross()) return valid;
  return valid.narrow(1, table.num_context(), table.num_rows());
}

}  // namespace

Abc::Abc(const Options& options, const core::AttentionBuild& build)
    : options_(options),
      activation_(activation_of(options.control.activation)),
      scale_(options.scale == "sqrt_d" ? 1.0 / std::sqrt(static_cast<double>(build.head_dim)) : 1.0),
      causal_(build.causal),
      maps_(build.attn, build.dim, build.num_heads, build.head_dim, options.qkv_bias.value_or(options.bias), options.bias,
            build.init_std) {
  base::require(options.control.tied_kv, "ABC: expected control.tied_kv = true (one control serves keys and values), found false");
  if (causal_) build.attn.reserve_state("k, v, z", {build.num_heads, options.num_slots, 2 * build.head_dim + 1});
  const int64_t heads = options.control.shared_across_heads ? 1 : build.num_heads;
  control_ = (build.attn / "control")
                 .add("weight", {heads * options.num_slots, build.dim}, layers::normal(build.init_std),
                      layers::ParameterKind::memory);
}

core::State Abc::initial_state(int64_t batch) const {
  if (!causal_) return AbcState{};
  const auto empty = ops::abc_empty(batch, maps_.num_heads, options_.num_slots, maps_.head_dim, activation_,
                                    control_.options().requires_grad(false));
  return AbcState{empty.k, empty.v, empty.z};
}

core::CoreAttention::Heads Abc::heads(const core::AttentionInput& input, const core::State& state) const {
  const bool cross = input.table.is_cross();
  base::ensure(cross || !input.context.defined(), "ABC has no use for the rows of a layer context");
  base::ensure(!(cross && causal_), "a causal ABC cannot attend to another sequence");
  const at::Tensor& rows = cross ? input.context : input.x;
  const auto [q, k, v] = maps_.heads(input.x, rows);
  const int64_t heads = options_.control.shared_across_heads ? 1 : maps_.num_heads;
  const at::Tensor logits = ops::linear(rows, control_, {})
                                .view({rows.size(0), rows.size(1), heads, options_.num_slots})
                                .transpose(1, 2)
                                .expand({-1, maps_.num_heads, -1, -1});  // [B,H,S,n]
  const at::Tensor valid = key_validity(input.table, causal_);
  if (!causal_) {
    const at::Tensor o = ops::abc_full(q, k, v, logits, valid, activation_, options_.control.eps, scale_);
    return {maps_.join(o), state};
  }
  const auto& past = state.as<AbcState>();
  require_state("abc", past.k, {rows.size(0), maps_.num_heads, options_.num_slots, maps_.head_dim});
  auto [o, memory] = ops::abc_causal(q, k, v, logits, {past.k, past.v, past.z}, valid, activation_, options_.control.eps,
                                     scale_);
  return {maps_.join(o), AbcState{memory.k, memory.v, memory.z}};
}

}  // namespace mnemo::memory
