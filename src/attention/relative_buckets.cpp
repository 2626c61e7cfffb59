#include "attention/relative_buckets.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "base/error.h"
#include "core/inspection.h"
#include "ops/attention/attention.h"

namespace mnemo::attention {

RelativeBuckets::RelativeBuckets(const Options& options, const core::AttentionBuild& build)
    : KeyValueAttention(build, options.bias, options.bias),
      buckets_{!build.causal, options.num_buckets, options.max_distance},
      scaled_(options.scaled),
      dropout_(options.dropout) {
  buckets_.validate();
  table_ = build.shared.share("relative_bias", {options.num_buckets, build.num_heads}, layers::normal(build.init_std),
                              layers::ParameterKind::bias);
}

double RelativeBuckets::scale() const { return scaled_ ? 1.0 / std::sqrt(static_cast<double>(maps_.head_dim)) : 1.0; }

at::Tensor RelativeBuckets::positions(int64_t queries, int64_t keys, bool looks_right) const {
  const at::Tensor bias = ops::bucket_positions(table_, buckets_, queries, keys, looks_right);
  return scaled_ ? bias / scale() : bias;  // the bias itself is not scaled
}

core::CoreAttention::Heads RelativeBuckets::heads(const core::AttentionInput& input, const core::State& state) const {
  base::ensure(!input.table.is_cross(), "relative_buckets: cross-attention is not supported");
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const at::Tensor bias = positions(q.size(2), kv.k.size(2), input.table.looks_right());
  const bool drops = dropout_ > 0.0 && input.mode == core::Mode::train;
  // The kernel reads rows of any stride, so one copy serves the whole batch.
  const at::Tensor o = ops::attention(q, kv.k, kv.v, {{}, {}, {}, bias.contiguous().expand({q.size(0), -1, -1, -1})},
                                      input.table.ranges(), scale(), drops ? dropout_ : 0.0);
  return {maps_.join(o), input.ends ? core::State(core::KvState{}) : core::State(kv), {}, own_rows(input, {q, k, v})};
}

core::AttentionView RelativeBuckets::inspect(const core::AttentionInput& input, const core::State& state,
                                             const core::State&) const {
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const at::Tensor bias = positions(q.size(2), kv.k.size(2), true).expand({q.size(0), -1, -1, -1});
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys,
            ops::attention_weights(q, kv.k, bias, ops::RelShift::signed_, input.table.expand(), scale())}}};
}

}  // namespace mnemo::attention
