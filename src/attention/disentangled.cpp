#include "attention/disentangled.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

#include "attention/key_rows.h"
#include "base/error.h"
#include "core/inspection.h"

namespace mnemo::attention {

Disentangled::Disentangled(const Options& options, const core::AttentionBuild& build)
    : ProjectedAttention(build, options.bias, options.bias),
      options_(options),
      distances_{options.num_buckets, options.max_distance} {
  base::require(!build.causal, "{}",
                "disentangled attention reads rows on both sides: expected backbone.type = \"encoder\"");
  distances_.validate();
  const int64_t width = build.num_heads * build.head_dim;
  table_ = build.shared.share("rel_embeddings", {2 * distances_.span(), build.dim}, layers::normal(build.init_std));
  if (options.norm_positions) {
    norm_.weight = build.shared.share("rel_norm.weight", {build.dim}, layers::constant(1.0),
                                      layers::ParameterKind::norm);
    norm_.bias = build.shared.share("rel_norm.bias", {build.dim}, layers::constant(0.0), layers::ParameterKind::norm);
    norm_.eps = options.norm_eps;
  }
  if (options.share_att_key) return;
  if (options.c2p)
    position_k_ = layers::Linear(build.attn / "position_k", build.dim, width, options.bias, build.init_std);
  if (options.p2c)
    position_q_ = layers::Linear(build.attn / "position_q", build.dim, width, options.bias, build.init_std);
}

at::Tensor Disentangled::project_positions(const layers::Linear& map, const at::Tensor& positions) const {
  return map(positions).view({positions.size(0), maps_.num_heads, maps_.head_dim}).transpose(0, 1);
}

at::Tensor Disentangled::weights(const core::AttentionInput& input,
                                 const layers::AttentionProjections::Heads& rows) const {
  const at::Tensor positions = norm_.weight.defined() ? norm_(table_) : table_;
  const auto or_shared = [](const layers::Linear& own, const layers::Linear& shared) -> const layers::Linear& {
    return own.weight.defined() ? own : shared;
  };
  at::Tensor keys, queries;
  if (options_.c2p) keys = project_positions(or_shared(position_k_, maps_.k), positions);
  if (options_.p2c) queries = project_positions(or_shared(position_q_, maps_.q), positions);
  const int kinds = 1 + static_cast<int>(options_.c2p) + static_cast<int>(options_.p2c);
  const double scale = 1.0 / std::sqrt(static_cast<double>(maps_.head_dim * kinds));
  const at::Tensor index = distances_.rows(rows.q.size(2), rows.k.size(2)).to(rows.q.device());
  const at::Tensor scores = ops::disentangled_scores(rows.q, rows.k, keys, queries, index, scale);
  const at::Tensor mask = input.table.expand().to(scores.device()),
                   allowed = mask.dim() == 2 ? mask : mask.unsqueeze(1), any = allowed.any(-1, true);
  // A query without keys gets a harmless softmax and then zeros, so that no gradient is NaN.
  return at::softmax(scores.masked_fill(at::logical_and(at::logical_not(allowed), any),
                                        -std::numeric_limits<double>::infinity()),
                     -1) *
         any;
}

core::CoreAttention::Heads Disentangled::heads(const core::AttentionInput& input, const core::State&) const {
  base::ensure(!input.table.is_cross() && !input.context.defined(), "disentangled: only its own rows are supported");
  const layers::AttentionProjections::Heads rows = maps_.heads(input.x, input.x);
  const at::Tensor shares = layers::dropout(weights(input, rows), options_.dropout, input.mode == core::Mode::train);
  return {maps_.join(at::matmul(shares, rows.v)), {}, {}, rows};
}

core::AttentionView Disentangled::inspect(const core::AttentionInput& input, const core::State&,
                                          const core::State&) const {
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys, weights(input, maps_.heads(input.x, input.x))}}};
}

}  // namespace mnemo::attention
