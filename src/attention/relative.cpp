#include "attention/relative.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "base/error.h"
#include "core/inspection.h"
#include "ops/attention/attention.h"
#include "ops/attention/position.h"
#include "ops/batch_rows.h"
#include "ops/naive/attention.h"

namespace mnemo::attention {

Relative::Relative(const Options& options, const core::AttentionBuild& build)
    : KeyValueAttention(build, options.bias, options.bias),
      options_(options),
      dim_(build.dim),
      r_(build.attn / "r", build.dim, build.num_heads * build.head_dim, false, build.init_std) {
  base::require(build.dim % 2 == 0, "relative attention: expected an even dim, found {}", build.dim);
  const layers::Scope& owner = options.shared_uv ? build.shared : build.layer;
  const auto start = layers::normal(build.init_std);
  u_ = owner.share("u", {build.num_heads, build.head_dim}, start, layers::ParameterKind::bias);
  v_ = owner.share("v", {build.num_heads, build.head_dim}, start, layers::ParameterKind::bias);
}

ops::Positions Relative::positions(const at::Tensor& q, const at::Tensor& sinusoids) const {
  const int64_t heads = maps_.num_heads, width = maps_.head_dim, batch = q.size(0), queries = q.size(2);
  const int64_t distances = sinusoids.size(0);
  // With few queries, (W_r^T (q + v)) . R is cheaper than projecting every distance.
  const bool few = batch * queries * (width + distances) < distances * width;
  if (!few) return {u_, v_, r_(sinusoids).view({distances, heads, width}), {}};
  const at::Tensor by_head = (q + v_.unsqueeze(1)).transpose(0, 1).reshape({heads, batch * queries, width});
  const at::Tensor folded = at::bmm(by_head, r_.weight.view({heads, width, dim_}));  // [H,B*Q,D]
  return {u_, {}, {}, at::matmul(folded, sinusoids.t()).view({heads, batch, queries, distances}).transpose(0, 1)};
}

at::Tensor Relative::sinusoids(const core::AttentionInput& input, const at::Tensor& q, int64_t keys) const {
  const bool evaluates = input.mode == core::Mode::evaluate;
  const int64_t clamp = evaluates ? options_.eval_clamp_len.value_or(options_.clamp_len) : options_.clamp_len;
  // The two shifts differ only for keys to the right of their query.
  return ops::distance_sinusoids(q.size(2), keys, input.table.looks_right() && !faithful(input.table), clamp, dim_,
                                 at::TensorOptions().dtype(q.scalar_type()).device(q.device()));
}

core::CoreAttention::Heads Relative::heads(const core::AttentionInput& input, const core::State& state) const {
  base::ensure(!input.table.is_cross(), "relative: cross-attention is not supported");
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(maps_.head_dim));
  const bool training = input.mode == core::Mode::train;
  at::Tensor distances = sinusoids(input, q, kv.k.size(2));
  // All sequences share the positions, so the mask is not drawn by row as in layers::dropout.
  if (training && options_.position_dropout > 0.0) {
    const double p = options_.position_dropout;
    distances = distances.is_cpu()
                    ? distances *
                          at::empty_like(distances).bernoulli_(1.0 - p, ops::generator_now(at::kCPU)).div_(1.0 - p)
                    : at::dropout(distances, p, true);
  }
  at::Tensor o;
  const double dropout = training ? options_.dropout : 0.0;
  if (faithful(input.table)) {
    const at::Tensor r = r_(distances).view({-1, maps_.num_heads, maps_.head_dim}).permute({1, 2, 0});  // [H,d,P]
    o = ops::attention_naive(q + u_.unsqueeze(1), kv.k, kv.v, at::matmul(q + v_.unsqueeze(1), r),
                             ops::RelShift::faithful, input.table.expand(), scale, dropout);
  } else {
    o = ops::attention(q, kv.k, kv.v, positions(q, distances), input.table.ranges(), scale, dropout);
  }
  return {maps_.join(o), input.ends ? core::State(core::KvState{}) : core::State(kv), {}, own_rows(input, {q, k, v})};
}

Relative::Terms Relative::terms(const core::AttentionInput& input, const core::State& state) const {
  const auto [q, k, v] = maps_.heads(input.x, key_rows(input));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const at::Tensor r = r_(sinusoids(input, q, kv.k.size(2)))
                           .view({-1, maps_.num_heads, maps_.head_dim})
                           .permute({1, 2, 0});  // [H,d,P]
  return {q + u_.unsqueeze(1), kv.k, at::matmul(q + v_.unsqueeze(1), r),
          faithful(input.table) ? ops::RelShift::faithful : ops::RelShift::signed_,
          1.0 / std::sqrt(static_cast<double>(maps_.head_dim))};
}

core::AttentionView Relative::inspect(const core::AttentionInput& input, const core::State& state,
                                      const core::State&) const {
  const Terms of = terms(input, state);
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys,
            ops::attention_weights(of.q, of.k, of.position, of.shift, input.table.expand(), of.scale)}}};
}

at::Tensor Relative::scores(const core::AttentionInput& input, const core::State& state) const {
  const Terms of = terms(input, state);
  const at::Tensor mask = input.table.expand().to(of.q.device());
  return ops::attention_scores(of.q, of.k, of.position, of.shift, of.scale) *
         (mask.dim() == 2 ? mask : mask.unsqueeze(1));
}

}  // namespace mnemo::attention
