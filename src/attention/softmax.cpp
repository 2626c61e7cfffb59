#include "attention/softmax.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"

namespace mnemo::attention {

Softmax::Softmax(const Options& options, const core::AttentionBuild& build)
    : maps_(build.attn, build.dim, build.num_heads, build.head_dim, options.qkv_bias.value_or(options.bias),
            options.bias, build.init_std),
      dropout_(options.dropout) {}

core::State Softmax::initial_state(int64_t) const { return core::KvState{}; }

at::Tensor Softmax::read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  return ops::attention(q, k, v, {}, ops::KeyRanges::all(q.size(2), k.size(2)),
                        1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

core::CoreAttention::Heads Softmax::heads(const core::AttentionInput& input, const core::State& state) const {
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(maps_.head_dim));
  const bool drops = dropout_ > 0.0 && input.mode == core::Mode::train;
  const at::Tensor o = drops ? ops::attention_naive(q, kv.k, kv.v, {}, ops::RelShift::none, input.table.expand(), scale,
                                                    dropout_)
                             : ops::attention(q, kv.k, kv.v, {}, input.table.ranges(), scale);
  return {maps_.join(o), input.ends ? core::State(core::KvState{}) : core::State(kv), {}, own_rows(input, {q, k, v})};
}

core::EncoderRows Softmax::encoder_rows(const at::Tensor& encoder_output, const at::Tensor& valid) const {
  return {maps_.split(maps_.k(encoder_output)), maps_.split(maps_.v(encoder_output)), valid,
          1.0 / std::sqrt(static_cast<double>(maps_.head_dim))};
}

core::AttentionView Softmax::inspect(const core::AttentionInput& input, const core::State& state,
                                     const core::State&) const {
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(maps_.head_dim));
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys,
            ops::attention_weights(q, kv.k, {}, ops::RelShift::none, input.table.expand(), scale)}}};
}

}  // namespace mnemo::attention
