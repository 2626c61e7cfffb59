#include "backbones/pyramid.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "base/error.h"
#include "layers/drop_path.h"

namespace mnemo::backbones {

void Pyramid::add_stage(const VisionBuild& build, int64_t depth, const StageBuild& stage) {
  const std::string name = fmt::format("stages.{}", num_stages());
  const layers::Scope stages = build.scope / "stages" / num_stages();
  for (int64_t n = 0; n < depth; ++n) {
    const layers::Scope at = stages / "layers" / n;
    PyramidLayer layer;
    layer.name = fmt::format("{}.layers.{}", name, n);
    layer.attention_name = (at / "attn").prefix();
    layer.norm1 = layers::LayerNorm(at / "norm1", stage.dim, stage.norm_eps);
    layer.attention = build.make_attention(stage.core,
                                           {at / "attn", at, build.scope, stage.dim, stage.num_heads,
                                            stage.dim / stage.num_heads, false, stage.init_std, num_layers()},
                                           stage.image);
    layer.norm2 = layers::LayerNorm(at / "norm2", stage.dim, stage.norm_eps);
    layer.feed_forward = stage.make_feed_forward(at / "ffn");
    layer.drop_path = layers::drop_path_of(stage.drop_path, num_layers(), stage.layers_in_all);
    layers_.push_back(std::move(layer));
  }
  first_layer_.push_back(layers_.size());
}

at::Tensor Pyramid::run_stage(int64_t stage, at::Tensor h, const core::RealCells& cells,
                              const core::BackboneInput& input, core::State::Children& states,
                              const Attend& attend) const {
  const bool training = input.mode == core::Mode::train;
  for (size_t n = first_layer_[static_cast<size_t>(stage)]; n < first_layer_[static_cast<size_t>(stage) + 1]; ++n) {
    const PyramidLayer& layer = layers_[n];
    core::AttentionResult attended = attend(layer, static_cast<int64_t>(n), layer.norm1(h));
    states.emplace_back(layer.attention_name, std::move(attended.state));
    h = h + layers::drop_path(attended.y, layer.drop_path, training);
    at::Tensor branch;
    {
      RECORD_USER_SCOPE("feed_forward");
      branch = layer.feed_forward(layer.norm2(h), cells);
    }
    h = h + layers::drop_path(branch, layer.drop_path, training);
    tell(input, layer.name, h);
  }
  return h;
}

at::Tensor Pyramid::run_open_stage(int64_t stage, const at::Tensor& h, const core::RealCells& cells,
                                   const core::BackboneInput& input, const core::State& state,
                                   core::State::Children& states) const {
  const int64_t class_tokens = h.size(1) - cells.grid.size();
  core::AttendTable table = open_table(class_tokens, cells.grid);
  table.set_valid(cells.mask(h.device(), class_tokens));
  const core::ImageRows image{cells.grid};
  return run_stage(stage, h, cells, input, states,
                   [&](const PyramidLayer& layer, int64_t number, const at::Tensor& rows) {
                     core::AttentionInput attention{rows, {}, table, input.mode};
                     attention.image = &image;
                     const core::State child = state.child(layer.attention_name);
                     if (input.observe) input.observe(number, *layer.attention, attention, child);
                     RECORD_USER_SCOPE("attention");
                     return layer.attention->forward(attention, child);
                   });
}

void Pyramid::add_level(const core::BackboneInput& input, const at::Tensor& h, const core::RealCells& cells,
                        std::vector<core::ImageLevel>& levels) {
  const int64_t size = cells.grid.size();
  if (input.levels) levels.push_back({h.narrow(1, h.size(1) - size, size), cells.grid, cells});
}

void require_stages(const base::Where& where, const char* key, size_t found, size_t stages) {
  where.require(found == stages, key, "expected one for each of the {} stages of depths, found {}", stages, found);
}

}  // namespace mnemo::backbones
