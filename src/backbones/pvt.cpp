#include "backbones/pvt.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "backbones/pvt_stages.h"
#include "base/error.h"
#include "layers/feed_forward.h"
#include "ops/activation.h"
#include "ops/image/image_rows.h"

namespace mnemo::backbones {
namespace {

constexpr double kEmbeddingNormEps = 1e-5;
constexpr int64_t kMerge = 2;  // later stages: patches of 2 x 2

}  // namespace

void PvtOptions::validate(const base::Where& where) const {
  PvtStageOptions::validate(where);
  const auto all = grids(image_size[0], image_size[1]);
  for (size_t s = 0; s < depths.size(); ++s) {
    where.require(all[s].height >= sr_ratios[s] && all[s].width >= sr_ratios[s], "image_size",
                  "{} x {} gives a grid of {} x {} in stage {}, smaller than its sr_ratio of {}", image_size[0],
                  image_size[1], all[s].height, all[s].width, s, sr_ratios[s]);
  }
}

std::vector<core::Grid> PvtOptions::grids(int64_t height, int64_t width) const {
  std::vector<core::Grid> all = {{height / patch_size, width / patch_size}};
  while (all.size() < depths.size()) all.push_back({all.back().height / kMerge, all.back().width / kMerge});
  return all;
}

Pvt::Pvt(const PvtOptions& options, const VisionBuild& build) : options_(options) {
  const size_t count = options.depths.size();
  base::require(build.whole || count == 1, "pvt: a layer_stack must have one stage, found {}", count);
  base::require(
      !build.whole || options.sr_ratios.back() == 1,
      "pvt: the last stage has a class token, which cannot be reduced: expected sr_ratios to end with 1, found {}",
      options.sr_ratios.back());
  const std::vector<core::Grid> grids = options.grids(options.image_size[0], options.image_size[1]);
  const double std = options.init_std;
  for (size_t s = 0; s < count; ++s) {
    const int64_t dim = options.dims[s], hidden = options.ffn_dim(s);
    if (build.whole) {
      const layers::Scope at = build.scope / "stages" / static_cast<int64_t>(s);
      const bool first = s == 0, last = s + 1 == count;
      const int64_t patch = first ? options.patch_size : kMerge;
      Stage stage;
      stage.patches = layers::PatchEmbedding(at / "patch_embedding", first ? options.in_channels : options.dims[s - 1],
                                             dim, patch, patch, 0, std);
      stage.norm = layers::LayerNorm(at / "patch_norm", dim, kEmbeddingNormEps);
      // Neither is subject to weight decay: the parameter kind is that of memories.
      if (last)
        class_token_ = build.scope.add("class_token", {dim}, layers::normal(std), layers::ParameterKind::memory);
      stage.positions = (at / "positions")
                            .add("weight", {grids[s].size() + (last ? 1 : 0), dim}, layers::normal(std),
                                 layers::ParameterKind::memory);
      stages_.push_back(std::move(stage));
    }
    const core::ImageLayout image{grids[s], build.whole && s + 1 == count ? 1 : 0, options.sr_ratios[s]};
    StageBuild stage{
        dim, options.num_heads[s], options.norm_eps, std, options.drop_path, options.num_layers(), {}, image, {}};
    stage.core = base::Node::table(
        {{"type", "spatial_reduction"}, {"sr_ratio", options.sr_ratios[s]}, {"qkv_bias", options.qkv_bias}});
    stage.make_feed_forward = [&](const layers::Scope& scope) {
      const layers::FeedForward ffn(scope, dim, hidden, ops::Activation::gelu, std);
      return [ffn](const at::Tensor& rows, const core::RealCells&) { return ffn(rows); };
    };
    add_stage(build, options.depths[s], stage);
  }
  if (build.whole) final_norm_ = layers::LayerNorm(build.scope / "final_norm", options.dims.back(), options.norm_eps);
}

at::Tensor Pvt::positions(size_t stage, const core::RealCells& cells) const {
  const core::Grid trained = options_.grids(options_.image_size[0], options_.image_size[1])[stage];
  return positions_for(cells, stages_[stage].positions, trained, ops::GridResampling::bilinear);
}

core::BackboneResult Pvt::forward(const core::BackboneInput& input, const core::State& state) const {
  core::State::Children states;
  std::vector<core::ImageLevel> levels;
  if (stages_.empty()) {
    const core::Grid grid = options_.grids(options_.image_size[0], options_.image_size[1]).front();
    base::require(input.rows.defined() && input.rows.dim() == 3 && input.rows.size(1) == grid.size() &&
                      input.rows.size(2) == dim(),
                  "[pvt] expected rows [B,{},{}], found {}", grid.size(), dim(),
                  input.rows.defined() ? c10::str(input.rows.sizes()) : "none");
    tell(input, "embed", input.rows);
    const core::RealCells cells{grid, {}};
    const at::Tensor h = run_open_stage(0, input.rows, cells, input, state, states);
    add_level(input, h, cells, levels);
    return {h, core::State::list(std::move(states)), {}, grid, std::move(levels)};
  }
  const at::Tensor pixels = real_pixels("pvt", input, options_.in_channels);
  const std::vector<core::Grid> grids = options_.grids(pixels.size(2), pixels.size(3));
  require_grids("pvt", pixels, grids, options_.sr_ratios);
  const std::vector<core::RealCells> cells = real_cells("pvt", input, grids);
  at::Tensor h;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    {
      RECORD_USER_SCOPE("embedding");
      h = s == 0 ? stage.patches(pixels)
                 : ops::strided_conv(cells[s - 1].keep(h), grids[s - 1].height, grids[s - 1].width,
                                     stage.patches.weight, stage.patches.bias);
      h = stage.norm(h);
      if (s + 1 == stages_.size()) h = at::cat({class_token_.expand({h.size(0), 1, -1}), h}, 1);
      h = h + positions(s, cells[s]);
    }
    tell(input, s == 0 ? "embed" : fmt::format("stages.{}.embed", s), h);
    h = run_open_stage(static_cast<int64_t>(s), h, cells[s], input, state, states);
    if (s + 1 < stages_.size()) add_level(input, h, cells[s], levels);
  }
  h = final_norm_(h);
  tell(input, "final_norm", h);
  add_level(input, h, cells.back(), levels);
  return {h, core::State::list(std::move(states)), {}, grids.back(), std::move(levels)};
}

}  // namespace mnemo::backbones
