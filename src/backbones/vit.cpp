#include "backbones/vit.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <cmath>

#include "base/error.h"
#include "layers/drop_path.h"
#include "ops/activation.h"

namespace mnemo::backbones {

void VitOptions::validate(const base::Where& where) const {
  where.require(image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", image_size.size());
  where.require(image_size[0] % patch_size == 0 && image_size[1] % patch_size == 0, "image_size",
                "expected multiples of patch_size = {}, found {} x {}", patch_size, image_size[0], image_size[1]);
  where.require(dim % num_heads == 0, "num_heads", "expected a divisor of dim = {}, found {}", dim, num_heads);
  where.require(ffn_dim() >= 1, "mlp_ratio", "gives no hidden width: {} * {}", mlp_ratio, dim);
}

int64_t VitOptions::ffn_dim() const { return std::llround(mlp_ratio * static_cast<double>(dim)); }

core::AttentionResult VitLayer::attend(const core::AttentionInput& input, const core::State& state) const {
  RECORD_USER_SCOPE("attention");
  return attention->forward(input, state);
}

at::Tensor VitLayer::add_branch(const at::Tensor& h, const at::Tensor& branch, const at::Tensor& scale,
                                core::Mode mode) const {
  const bool training = mode == core::Mode::train;
  const at::Tensor rows = layers::dropout(branch, dropout, training);
  return h + layers::drop_path(scale.defined() ? rows * scale : rows, drop_path, training);
}

at::Tensor VitLayer::feed_forward(const at::Tensor& h, core::Mode mode) const {
  at::Tensor branch;
  {
    RECORD_USER_SCOPE("feed_forward");
    branch = ffn(norm2(h));
    if (adapter2) branch = (*adapter2)(branch);
  }
  return add_branch(h, branch, scale2, mode);
}

at::Tensor VitLayer::rest(const at::Tensor& h, const at::Tensor& y, core::Mode mode) const {
  return feed_forward(add_branch(h, adapter1 ? (*adapter1)(y) : y, scale1, mode), mode);
}

Vit::Vit(const VitOptions& options, const VisionBuild& build) : options_(options) {
  const layers::Scope& scope = build.scope;
  const int64_t dim = options.dim;
  const double std = options.init_std;
  if (build.whole) {
    patches_ = layers::PatchEmbedding(scope / "patch_embedding", options.in_channels, dim, options.patch_size,
                                      options.patch_size, 0, std);
    // Neither is subject to weight decay: the parameter kind is that of memories.
    if (options.cls_tokens > 0)
      class_token_ = scope.add("class_token", {dim}, layers::normal(std), layers::ParameterKind::memory);
    positions_ = (scope / "positions")
                     .add("weight", {options.cls_tokens + options.grid().size(), dim}, layers::normal(std),
                          layers::ParameterKind::memory);
  }
  const base::Node core = base::Node::table({{"type", "softmax"}, {"bias", true}, {"qkv_bias", options.qkv_bias}});
  for (int64_t n = 0; n < options.num_layers; ++n) {
    const layers::Scope at = scope / "layers" / n;
    VitLayer layer;
    layer.name = (at / "attn").prefix();
    layer.attention = build.make_attention(
        core, {at / "attn", at, scope, dim, options.num_heads, dim / options.num_heads, false, std, n},
        {options.grid(), options.cls_tokens});
    layer.norm1 = layers::LayerNorm(at / "norm1", dim, options.norm_eps);
    layer.norm2 = layers::LayerNorm(at / "norm2", dim, options.norm_eps);
    layer.ffn = layers::FeedForward(at / "ffn", dim, options.ffn_dim(), ops::Activation::gelu, std);
    if (options.layer_scale) {
      layer.scale1 = at.add("scale1", {dim}, layers::constant(*options.layer_scale), layers::ParameterKind::norm);
      layer.scale2 = at.add("scale2", {dim}, layers::constant(*options.layer_scale), layers::ParameterKind::norm);
    }
    if (build.adapters) {
      layer.adapter1 = layers::Adapter(*build.adapters, at / "adapter1", dim);
      layer.adapter2 = layers::Adapter(*build.adapters, at / "adapter2", dim);
    }
    layer.drop_path = layers::drop_path_of(options.drop_path, n, options.num_layers);
    layer.dropout = options.dropout;
    layers_.push_back(std::move(layer));
  }
  if (build.whole) final_norm_ = layers::LayerNorm(scope / "final_norm", dim, options.norm_eps);
}

core::Grid Vit::grid_of(const at::Tensor& pixels) const {
  base::require(pixels.dim() == 4 && pixels.size(1) == options_.in_channels,
                "[vit] expected pixels [B,{},H,W], found {}", options_.in_channels, c10::str(pixels.sizes()));
  const int64_t patch = options_.patch_size, height = pixels.size(2), width = pixels.size(3);
  base::require(height > 0 && width > 0 && height % patch == 0 && width % patch == 0,
                "[vit] expected images whose height and width are multiples of patch_size = {}, found {} x {}", patch,
                height, width);
  return {height / patch, width / patch};
}

at::Tensor Vit::positions(const core::Grid& grid) const {
  return positions_for(grid, positions_, options_.grid(), options_.position_resampling);
}

at::Tensor Vit::embed(const at::Tensor& pixels, const core::RealCells& cells) const {
  RECORD_USER_SCOPE("embedding");
  at::Tensor rows = patches_(pixels);
  if (class_token_.defined()) rows = at::cat({class_token_.expand({rows.size(0), 1, -1}), rows}, 1);
  return rows + positions_for(cells, positions_, options_.grid(), options_.position_resampling);
}

core::BackboneResult Vit::forward(const core::BackboneInput& input, const core::State& state) const {
  const bool embeds = patches_.weight.defined();
  base::require((embeds ? input.pixels : input.rows).defined(), "[vit] expected {}",
                embeds ? "pixels [B,C,H,W]" : "rows [B,T,D]");
  const core::Grid grid = embeds ? grid_of(input.pixels) : options_.grid();
  const core::RealCells cells = embeds ? real_cells("vit", input, {grid}).front() : core::RealCells{grid, {}};
  at::Tensor h = embeds ? embed(real_pixels("vit", input, options_.in_channels), cells) : input.rows;
  base::require(h.dim() == 3 && h.size(1) == options_.cls_tokens + grid.size() && h.size(2) == options_.dim,
                "[vit] expected rows [B,{},{}], found {}", options_.cls_tokens + grid.size(), options_.dim,
                c10::str(h.sizes()));
  core::AttendTable table = attend_table(grid);
  table.set_valid(cells.mask(h.device(), options_.cls_tokens));
  const core::ImageRows image{grid};
  if (input.hidden) input.hidden("embed", h);
  h = layers::dropout(h, options_.dropout, input.mode == core::Mode::train);
  core::State::Children states;
  for (size_t n = 0; n < layers_.size(); ++n) {
    const VitLayer& layer = layers_[n];
    core::AttentionInput rows{layer.norm1(h), {}, table, input.mode};
    rows.image = &image;
    if (input.observe) input.observe(static_cast<int64_t>(n), *layer.attention, rows, state.child(layer.name));
    core::AttentionResult attended = layer.attend(rows, state.child(layer.name));
    states.emplace_back(layer.name, std::move(attended.state));
    h = layer.rest(h, attended.y, input.mode);
    if (input.hidden) input.hidden(fmt::format("layers.{}", n), h);
  }
  if (final_norm_.weight.defined()) {
    h = final_norm_(h);
    if (input.hidden) input.hidden("final_norm", h);
  }
  core::BackboneResult result{h, core::State::list(std::move(states)), {}, grid};
  if (input.levels) result.levels = {{h.narrow(1, options_.cls_tokens, grid.size()), grid, cells}};
  return result;
}

}  // namespace mnemo::backbones
