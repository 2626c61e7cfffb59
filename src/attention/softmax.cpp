#include "attention/softmax.h"

#include <torch/types.h>

#include <cmath>

#include "attention/compared_rows.h"
#include "attention/key_rows.h"
#include "core/inspection.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/real_rows.h"

namespace mnemo::attention {

Softmax::Softmax(const Options& options, const core::AttentionBuild& build)
    : KeyValueAttention(build, options),
      frequencies_(options.frequencies(build.head_dim)),
      scaled_(options.scaled),
      dropout_(options.dropout) {}

double Softmax::scale_of(int64_t head_dim) const {
  return scaled_ ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
}

at::Tensor Softmax::read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  return ops::attention(q, k, v, {}, ops::KeyRanges::all(q.size(2), k.size(2)), scale_of(q.size(3)));
}

layers::AttentionProjections::Heads Softmax::projected(const core::AttentionInput& input) const {
  const bool alone = input.table.is_cross() || input.table.num_context() == 0;
  const std::optional<ops::RealRows> real = input.mode == core::Mode::train && alone
                                                ? ops::RealRows::if_it_pays(input.table.valid())
                                                : std::nullopt;
  const at::Tensor rows = key_rows(input);
  if (!real) return maps_.heads(input.x, rows);
  const auto y = ops::linear_maps(real->pack(rows), {{maps_.k.weight, maps_.k.bias}, {maps_.v.weight, maps_.v.bias}});
  return {maps_.split(maps_.q(input.x)), maps_.split(real->unpack(y[0])), maps_.split(real->unpack(y[1]))};
}

core::CoreAttention::Heads Softmax::heads(const core::AttentionInput& input, const core::State& state) const {
  const auto [q, k, v] = projected(input);
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const double scale = scale_of(maps_.head_dim);
  const bool drops = dropout_ > 0.0 && input.mode == core::Mode::train;
  const layers::AttentionProjections::Heads rows = compared(q, kv, 0, frequencies_);
  const at::Tensor o = ops::attention(rows.q, rows.k, rows.v, {}, input.table.ranges(), scale, drops ? dropout_ : 0.0);
  return {maps_.join(o), input.ends ? core::State(core::KvState{}) : core::State(kv), {}, own_rows(input, {q, k, v})};
}

core::AttentionView Softmax::inspect(const core::AttentionInput& input, const core::State& state,
                                     const core::State&) const {
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const double scale = scale_of(maps_.head_dim);
  const layers::AttentionProjections::Heads rows = compared(q, kv, 0, frequencies_);
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys,
            ops::attention_weights(rows.q, rows.k, {}, ops::RelShift::none, input.table.expand(), scale)}}};
}

}  // namespace mnemo::attention
