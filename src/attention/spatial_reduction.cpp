#include "attention/spatial_reduction.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "core/inspection.h"
#include "ops/attention/attention.h"

namespace mnemo::attention {

SpatialReduction::SpatialReduction(const Options& options, const core::AttentionBuild& build)
    : ProjectedAttention(build, options.qkv_bias, true),
      reduction_(build.attn, build.dim, options.sr_ratio,
                 options.reduction == Options::Reduction::pool ? options.pool_size : 0, options.norm_eps,
                 build.init_std) {
  base::require(!build.causal, "spatial_reduction: not causal, because a reduced row mixes later rows");
}

std::pair<at::Tensor, at::Tensor> SpatialReduction::sources(const core::AttentionInput& input) const {
  const core::Grid grid = input.grid();
  const core::AttendTable& table = input.table;
  const int64_t rows = input.x.size(1), contexts = input.context.defined() ? input.context.size(1) : 0;
  base::require(grid.size() > 0 && grid.size() <= rows,
                "[spatial_reduction] expected the rows of an image, found {} rows and a grid of {}x{}", rows,
                grid.height, grid.width);
  base::require(!reduction_.reduces() || grid.size() == rows,
                "[spatial_reduction] class tokens cannot be reduced: expected {} rows for a grid of {}x{}, found {}",
                grid.size(), grid.height, grid.width, rows);
  base::require(input.ends && !table.is_cross() && table.open() && table.num_context() == contexts,
                "[spatial_reduction] expected a full attention table over whole images");
  at::Tensor valid = table.valid();
  base::require(!valid.defined() || contexts > 0, "[spatial_reduction] expected no padding, found a row mask");
  const at::Tensor reduced = reduction_(input.x, grid.height, grid.width);
  if (contexts == 0) return {reduced, {}};
  if (valid.defined()) {
    base::require(valid.narrow(1, contexts, rows).all().item<bool>(),
                  "[spatial_reduction] expected no padding, found a row mask");
    valid = at::cat({valid.narrow(1, 0, contexts), valid.new_ones({valid.size(0), reduced.size(1)})}, 1);
  }
  return {at::cat({input.context, reduced}, 1), valid};
}

core::CoreAttention::Heads SpatialReduction::heads(const core::AttentionInput& input, const core::State& state) const {
  const auto [rows, valid] = sources(input);
  const auto [q, k, v] = maps_.heads(input.x, rows);
  ops::KeyRanges ranges = ops::KeyRanges::all(q.size(2), k.size(2));
  ranges.valid = valid;
  return {maps_.join(ops::attention(q, k, v, {}, ranges, 1.0 / std::sqrt(static_cast<double>(maps_.head_dim)))), state};
}

core::AttentionView SpatialReduction::inspect(const core::AttentionInput& input, const core::State&,
                                              const core::State&) const {
  const auto [rows, valid] = sources(input);
  const auto [q, k, v] = maps_.heads(input.x, rows);
  const at::Tensor mask = valid.defined() ? valid.unsqueeze(1).expand({-1, q.size(2), -1}) : valid;
  core::WeightMap map{"attention", core::MapAxis::queries, core::MapAxis::keys,
                      ops::attention_weights(q, k, {}, ops::RelShift::none, mask,
                                             1.0 / std::sqrt(static_cast<double>(maps_.head_dim)))};
  if (reduction_.reduces()) {
    map.columns = core::MapAxis::slots;
    const core::Grid grid = input.grid();
    map.image = reduction_.pool > 0 ? core::Grid{reduction_.pool, reduction_.pool}
                                    : core::Grid{grid.height / reduction_.ratio, grid.width / reduction_.ratio};
  }
  return {{std::move(map)}};
}

}  // namespace mnemo::attention
