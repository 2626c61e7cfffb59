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

std::pair<at::Tensor, at::Tensor> SpatialReduction::reduce(const at::Tensor& x, const core::RealCells& cells) const {
  const core::Grid grid = cells.grid;
  if (cells.all()) return {reduction_(x, grid.height, grid.width), {}};
  if (reduction_.pool == 0) {
    const core::Grid to{grid.height / reduction_.ratio, grid.width / reduction_.ratio};
    return {reduction_(cells.keep(x), grid.height, grid.width), cells.reduced(reduction_.ratio, to).mask(x.device())};
  }
  std::vector<at::Tensor> images;
  for (int64_t b = 0; b < x.size(0); ++b) {
    const core::Grid own = cells.of_image(b);
    const at::Tensor image = x.narrow(0, b, 1).unflatten(1, {grid.height, grid.width});
    images.push_back(
        reduction_(image.narrow(1, 0, own.height).narrow(2, 0, own.width).flatten(1, 2), own.height, own.width));
  }
  return {at::cat(images, 0), {}};
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
  const at::Tensor& valid = table.valid();
  const at::Tensor own = valid.defined() ? valid.narrow(1, contexts, rows) : valid;
  const auto [reduced, real] = reduction_.reduces() ? reduce(input.x, core::RealCells::from_mask(own, grid))
                                                    : std::pair(input.x, own);
  if (contexts == 0) return {reduced, real};
  if (!valid.defined()) return {at::cat({input.context, reduced}, 1), {}};
  const at::Tensor keys = real.defined() ? real : valid.new_ones({valid.size(0), reduced.size(1)});
  return {at::cat({input.context, reduced}, 1), at::cat({valid.narrow(1, 0, contexts), keys}, 1)};
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
