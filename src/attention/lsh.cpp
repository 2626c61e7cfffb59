#include "attention/lsh.h"

#include <torch/types.h>

#include "attention/key_rows.h"
#include "attention/linear_in_values.h"
#include "core/kv_state.h"
#include "ops/counter_rng.h"
#include "ops/linear/linear.h"

namespace mnemo::attention {

void LshOptions::validate(const base::Where& where) const {
  where.require(num_buckets.value_or(2) % 2 == 0, "num_buckets", "expected an even number, found {}",
                num_buckets.value_or(0));
  if (!arena()) return;
  where.require(num_hashes.value_or(1) == 1, "num_hashes", "variant \"lra\" supports one round, found {}",
                num_hashes.value_or(0));
  where.require(chunk_len.value_or(10) % num_buckets.value_or(10) == 0, "chunk_len",
                "variant \"lra\" divides rows into num_buckets chunks: expected a multiple of {}, found {}",
                num_buckets.value_or(10), chunk_len.value_or(10));
  where.require(!attend_across_buckets, "attend_across_buckets",
                "not supported by variant \"lra\", which does not compare buckets");
}

Lsh::Lsh(const Options& options, const core::AttentionBuild& build)
    : options_{options.num_buckets.value_or(options.arena() ? 10 : 16),
               options.chunk_len.value_or(options.arena() ? 10 : 32), options.attend_across_buckets, build.causal},
      arena_(options.arena()),
      num_heads_(build.num_heads),
      qk_(build.attn / "qk", build.dim, build.num_heads * build.head_dim, options.qkv_bias.value_or(options.bias),
          build.init_std),
      v_(build.attn / "v", build.dim, build.num_heads * build.head_dim, options.qkv_bias.value_or(options.bias),
         build.init_std) {
  base::require(!arena_ || !build.causal, "lsh: variant \"lra\" is not causal; use variant = \"paper\"");
  base::require(!arena_ || build.num_heads * build.head_dim == build.dim,
                "lsh: variant \"lra\" has no output projection: expected num_heads * head_dim = dim = {}, found {}",
                build.dim, build.num_heads * build.head_dim);
  if (!arena_)
    o_ = layers::Linear(build.attn / "o", build.num_heads * build.head_dim, build.dim, options.bias, build.init_std);
  const auto seed = static_cast<uint64_t>(options.seed), layer = static_cast<uint64_t>(build.layer_number);
  const int64_t rounds = options.num_hashes.value_or(arena_ ? 1 : 2), columns = options_.num_buckets / 2;
  rotations_ = arena_
                   ? ops::counter_normal({1, 1, build.head_dim, columns}, {seed}).expand({1, build.num_heads, -1, -1})
                   : ops::counter_normal({rounds, build.num_heads, build.head_dim, columns}, {seed, layer});
}

void Lsh::set_draw(const at::Tensor& rotations) {
  base::require(rotations.sizes() == rotations_.sizes(), "lsh: expected rotations of {}, found {}",
                c10::str(rotations_.sizes()), c10::str(rotations.sizes()));
  rotations_ = rotations.detach();
}

core::State Lsh::initial_state(int64_t) const { return core::KvState{}; }

at::Tensor Lsh::project(const at::Tensor& heads) const { return arena_ ? heads : o_(heads); }

core::CoreAttention::Heads Lsh::run(const core::AttentionInput& input, const core::State& state,
                                    const ops::ReplaceValues& replace) const {
  base::require(!input.table.is_cross(), "lsh: supports self-attention only; use softmax for cross-attention");
  base::ensure(!input.context.defined(), "lsh: unsupported: rows of a layer context");
  base::require(options_.causal || input.ends, "lsh: a bidirectional model requires whole segments");
  const at::Tensor& valid = plain_validity(input.table, options_.causal, "lsh");
  const auto rows = ops::linear_maps(input.x, {{qk_.weight, qk_.bias}, {v_.weight, v_.bias}});
  const auto split = [&](const at::Tensor& t) { return t.unflatten(-1, {num_heads_, -1}).transpose(1, 2); };
  const core::KvState kv = core::extend(state.as<core::KvState>(), split(rows[0]), split(rows[1]));
  const at::Tensor rotations = rotations_.to(kv.k.options().requires_grad(false));
  const at::Tensor v = ops::replaced(replace, kv.v);
  at::Tensor o = arena_ ? ops::lsh_attention_arena(kv.k, v, rotations, options_)
                        : ops::lsh_attention(kv.k, v, ops::lsh_buckets(kv.k, rotations, valid), valid, options_);
  const int64_t past = kv.k.size(2) - input.x.size(1);
  if (past > 0) o = o.narrow(2, past, input.x.size(1));
  return {layers::AttentionProjections::join(o), input.ends ? core::State(core::KvState{}) : core::State(kv)};
}

core::AttentionView Lsh::inspect(const core::AttentionInput& input, const core::State& state,
                                 const core::State&) const {
  return inspect_linear_in_values(input, num_heads_,
                                  [&](const ops::ReplaceValues& replace) { return run(input, state, replace).heads; });
}

}  // namespace mnemo::attention
