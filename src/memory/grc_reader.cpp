#include "memory/grc_reader.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/image/window_attention.h"

namespace mnemo::memory {
namespace {

/// The grid of a cache that is reduced.
core::Grid reduced_grid(const GrcOptions& options, const core::ImageLayout& image) {
  const int64_t length = options.length(image);
  core::Grid grid = image.grid;
  if (!options.cache_grid.empty()) grid = {options.cache_grid[0], options.cache_grid[1]};
  base::require(
      grid.size() == length,
      "grc: the attention reduces its keys, so the cache needs a grid: expected cache_grid = [height, width] with {} "
      "rows, as many as cache_len, found {}x{}",
      length, grid.height, grid.width);
  base::require(image.pool > 0 || (grid.height >= image.sr_ratio && grid.width >= image.sr_ratio),
                "grc: expected a cache_grid of at least {0}x{0}, the reduction of the attention, found {1}x{2}",
                image.sr_ratio, grid.height, grid.width);
  return grid;
}

}  // namespace

GrcReader::GrcReader(const GrcOptions& options, const core::AttentionBuild& build, const core::ImageLayout& image,
                     int64_t channels, const layers::Scope& scope, const core::ReadsHeads* same)
    : num_heads_(build.num_heads), same_(same) {
  const double std = build.init_std;
  q_ = layers::Linear(scope / "q", channels, channels, options.qkv_bias, std);
  k_ = layers::Linear(scope / "k", channels, channels, options.qkv_bias, std);
  v_ = layers::Linear(scope / "v", channels, channels, options.qkv_bias, std);
  if (options.variant == GrcOptions::Variant::authors) o_ = layers::Linear(scope / "o", channels, channels, true, std);
  if (options.widen == GrcOptions::Widen::projection)
    widen_ = layers::Linear(scope / "widen", channels, build.num_heads * build.head_dim, false, std);
  base::require(options.cache_grid.empty() || image.sr_ratio > 0,
                "grc: cache_grid is for an attention that reduces its keys; found none");
  if (image.reduces()) {
    cache_grid_ = reduced_grid(options, image);
    reduction_ = layers::GridReduction(scope, channels, image.sr_ratio, image.pool, 1e-5, std);
  }
  if (image.windows) {
    cache_grid_ = image.grid;
    base::require(options.length(image) == image.grid.size(),
                  "grc: in windows of {}x{} expected cache_len = {}, one row per position, found {}", image.grid.height,
                  image.grid.width, image.grid.size(), options.length(image));
    position_ = layers::RelativePositionBias(scope, image.grid.height, image.grid.width, num_heads_, std);
  }
}

at::Tensor GrcReader::position_bias(core::Grid grid) const {
  const at::Tensor bias = position_(cache_grid_.height, cache_grid_.width);
  if (grid.height == cache_grid_.height && grid.width == cache_grid_.width) return bias;
  if (grid.height > cache_grid_.height || grid.width > cache_grid_.width) {
    throw base::ShapeError(fmt::format("[grc] expected windows of at most {}x{}, found {}x{}", cache_grid_.height,
                                       cache_grid_.width, grid.height, grid.width));
  }
  // Windows of a smaller image use the positions at the upper left.
  const at::Tensor places = at::arange(cache_grid_.size(), bias.options().dtype(at::kLong).requires_grad(false));
  return bias.index_select(1, places.view({cache_grid_.height, cache_grid_.width})
                                  .narrow(0, 0, grid.height)
                                  .narrow(1, 0, grid.width)
                                  .flatten());
}

at::Tensor GrcReader::heads(const at::Tensor& x, const at::Tensor& cache, core::Grid grid,
                            const ops::ReplaceValues& replace) const {
  const at::Tensor query = split(q_(x));
  const at::Tensor rows = reduction_.reduces() ? reduction_(cache, cache_grid_.height, cache_grid_.width) : cache;
  // One cache for all sequences: its keys and values are projected once.
  const at::Tensor k = split(k_(rows)).expand({x.size(0), -1, -1, -1});
  const at::Tensor v = ops::replaced(replace, split(v_(rows)).expand({x.size(0), -1, -1, -1}));
  if (same_ != nullptr) return same_->read(query, k, v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  if (position_.table.defined()) return ops::window_attention(query, k, v, position_bias(grid), {}, scale);
  return ops::attention(query, k, v, {}, ops::KeyRanges::all(x.size(1), k.size(2)), scale);
}

at::Tensor GrcReader::project(const at::Tensor& heads) const {
  const at::Tensor joined = layers::AttentionProjections::join(heads);
  const at::Tensor projected = o_.weight.defined() ? o_(joined) : joined;
  return widens() ? widen_(projected) : projected;
}

}  // namespace mnemo::memory
