#include "backbones/pvt_v2.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "backbones/pvt_stages.h"
#include "base/error.h"
#include "layers/conv_feed_forward.h"
#include "ops/image/image_rows.h"

namespace mnemo::backbones {
namespace {

constexpr double kPatchNormEps = 1e-5;

struct Window {
  int64_t size, stride, padding;
  int64_t length(int64_t rows) const {
    return rows + 2 * padding < size ? 0 : (rows + 2 * padding - size) / stride + 1;
  }
};
constexpr Window kFirst{7, 4, 3}, kLater{3, 2, 1};

}  // namespace

std::vector<core::Grid> PvtV2Options::grids(int64_t height, int64_t width) const {
  std::vector<core::Grid> all = {{kFirst.length(height), kFirst.length(width)}};
  while (all.size() < depths.size()) all.push_back({kLater.length(all.back().height), kLater.length(all.back().width)});
  return all;
}

PvtV2::PvtV2(const PvtV2Options& options, const VisionBuild& build) : options_(options) {
  base::require(build.whole, "pvt_v2: does not support a layer_stack; expected kind = \"model\"");
  const double std = options.init_std;
  const std::vector<core::Grid> grids = options.grids(options.image_size[0], options.image_size[1]);
  for (size_t s = 0; s < options.depths.size(); ++s) {
    const layers::Scope at = build.scope / "stages" / static_cast<int64_t>(s);
    const int64_t dim = options.dims[s], hidden = options.ffn_dim(s);
    const Window& window = s == 0 ? kFirst : kLater;
    Stage parts;
    parts.patches = layers::PatchEmbedding(at / "patch_embedding", s == 0 ? options.in_channels : options.dims[s - 1],
                                           dim, window.size, window.stride, window.padding, std);
    parts.patch_norm = layers::LayerNorm(at / "patch_norm", dim, kPatchNormEps);
    const core::ImageLayout image{grids[s], 0, options.reductions()[s], options.linear ? 7 : 0};
    StageBuild stage{
        dim, options.num_heads[s], options.norm_eps, std, options.drop_path, options.num_layers(), {}, image, {}};
    stage.core = base::Node::table(
        {{"type", "spatial_reduction"}, {"sr_ratio", options.sr_ratios[s]}, {"qkv_bias", options.qkv_bias}});
    if (options.linear) stage.core.set("reduction", "pool");
    stage.make_feed_forward = [&](const layers::Scope& scope) {
      const layers::ConvFeedForward ffn(scope, dim, hidden, options.linear, std);
      return [ffn](const at::Tensor& rows, const core::RealCells& cells) {
        return ffn(rows, cells.grid.height, cells.grid.width, cells.mask(rows.device()));
      };
    };
    add_stage(build, options.depths[s], stage);
    parts.norm = layers::LayerNorm(at / "norm", dim, options.norm_eps);
    stages_.push_back(std::move(parts));
  }
}

core::BackboneResult PvtV2::forward(const core::BackboneInput& input, const core::State& state) const {
  at::Tensor h, image = real_pixels("pvt_v2", input, options_.in_channels);
  const int64_t height = image.size(2), width = image.size(3);
  base::require(height > 0 && width > 0, "[pvt_v2] expected an image, found one of {} x {}", height, width);
  const std::vector<core::Grid> grids = options_.grids(height, width);
  require_grids("pvt_v2", input.pixels, grids, options_.reductions());
  const std::vector<core::RealCells> cells = real_cells("pvt_v2", input, grids);
  core::State::Children states;
  std::vector<core::ImageLevel> levels;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    {
      RECORD_USER_SCOPE("embedding");
      h = stage.patch_norm(stage.patches(image));
    }
    tell(input, s == 0 ? "embed" : fmt::format("stages.{}.embed", s), h);
    h = stage.norm(run_open_stage(static_cast<int64_t>(s), h, cells[s], input, state, states));
    tell(input, fmt::format("stages.{}.norm", s), h);
    add_level(input, h, cells[s], levels);
    image = ops::rows_to_image(cells[s].keep(h), grids[s].height, grids[s].width);
  }
  return {h, core::State::list(std::move(states)), {}, grids.back(), std::move(levels)};
}

}  // namespace mnemo::backbones
