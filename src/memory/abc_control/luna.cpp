#include "memory/abc_control/luna.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "layers/parts.h"
#include "ops/abc/abc.h"
#include "ops/linear/linear.h"

namespace mnemo::memory {

AbcLunaControl::AbcLunaControl(const Options&, const AbcControlBuild& build)
    : heads_(build.attention.num_heads),
      slots_(build.num_slots),
      scale_(build.scale),
      control_scale_(1.0 / std::sqrt(static_cast<double>(build.attention.head_dim))) {
  const core::AttentionBuild& attention = build.attention;
  base::require(!attention.causal,
                "ABC: control 'luna' lets every slot see the whole sequence, so the model cannot be causal; use "
                "control \"mlp\", which is also learned");
  base::require(attention.num_heads * attention.head_dim == attention.dim,
                "ABC: control 'luna' passes slots up as rows: expected num_heads * head_dim = dim = {}, found {}",
                attention.dim, attention.num_heads * attention.head_dim);
  const auto map = [&](const char* name) {
    return (build.scope / name)
        .share("weight", {attention.dim, attention.dim}, layers::normal(attention.init_std),
               layers::ParameterKind::memory);
  };
  q_ = map("q");
  k_ = map("k");
  first_ = build.shared.share("slots", {slots_, attention.dim}, layers::normal(attention.init_std),
                              layers::ParameterKind::memory);
}

AbcAnswer AbcLunaControl::attend(const AbcCall& call, const core::State& state) const {
  const int64_t batch = call.rows.size(0), dim = call.rows.size(2);
  const at::Tensor slots = call.slots.defined() ? call.slots : first_.expand({batch, -1, -1});
  base::require(slots.dim() == 3 && slots.size(0) == batch && slots.size(1) == slots_ && slots.size(2) == dim,
                "[abc] control 'luna': expected slots [{},{},{}] of the layer below, found {}", batch, slots_, dim,
                c10::str(slots.sizes()));
  const auto split = [&](const at::Tensor& rows) { return rows.unflatten(-1, {heads_, -1}).transpose(1, 2); };
  const at::Tensor from_slots = split(ops::linear(slots, q_, {})), from_rows = split(ops::linear(call.rows, k_, {}));
  const at::Tensor s = at::matmul(from_rows, from_slots.transpose(-1, -2)) * control_scale_;  // [B,H,S,n]
  const auto memory = ops::abc_full_memory(call.k, call.v, s, call.valid, ops::AbcActivation::exp, 0.0);
  const at::Tensor o = at::matmul(at::softmax(at::matmul(call.q, memory.k.transpose(-1, -2)) * scale_, -1), memory.v);
  return {o, state, layers::AttentionProjections::join(memory.v), memory.v};
}

}  // namespace mnemo::memory
