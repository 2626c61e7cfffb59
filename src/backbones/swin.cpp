#include "backbones/swin.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "core/window_cut.h"
#include "layers/feed_forward.h"
#include "ops/activation.h"
#include "ops/image/windows.h"

namespace mnemo::backbones {

void SwinOptions::validate(const base::Where& where) const {
  where.require(image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", image_size.size());
  where.require(window_size.size() == 2, "window_size", "expected [height, width], found {} numbers",
                window_size.size());
  where.require(!depths.empty() && depths.size() <= 8, "depths", "expected 1 to 8 stages, found {}", depths.size());
  where.require(image_size[0] % patch_size == 0 && image_size[1] % patch_size == 0, "image_size",
                "expected multiples of patch_size = {}, found {} x {}", patch_size, image_size[0], image_size[1]);
  require_stages(where, "num_heads", num_heads.size(), depths.size());
  for (size_t s = 0; s < depths.size(); ++s) {
    where.require(dim_of(s) % num_heads[s] == 0, "num_heads", "expected a divisor of stage {}'s width {}, found {}", s,
                  dim_of(s), num_heads[s]);
  }
  where.require(std::llround(mlp_ratio * static_cast<double>(dim)) >= 1, "mlp_ratio", "gives no hidden width: {} * {}",
                mlp_ratio, dim);
}

std::vector<core::Grid> SwinOptions::grids(int64_t height, int64_t width) const {
  std::vector<core::Grid> all = {{height / patch_size, width / patch_size}};
  while (all.size() < depths.size()) all.push_back({(all.back().height + 1) / 2, (all.back().width + 1) / 2});
  return all;
}

core::Grid SwinOptions::window(const core::Grid& grid) const {
  return {std::min(window_size[0], grid.height), std::min(window_size[1], grid.width)};
}

at::Tensor Swin::Merging::operator()(const at::Tensor& rows, const core::Grid& grid) const {
  at::Tensor image = rows.unflatten(1, {grid.height, grid.width});
  if (grid.height % 2 != 0 || grid.width % 2 != 0)
    image = at::constant_pad_nd(image, {0, 0, 0, grid.width % 2, 0, grid.height % 2});
  // [B,h/2,2,w/2,2,D] -> [B,h/2,w/2,column,row,D]: the row index varies faster.
  const at::Tensor
      four = image.unflatten(1, {-1, 2}).unflatten(3, {-1, 2}).permute({0, 1, 3, 4, 2, 5}).flatten(3).flatten(1, 2);
  return reduction(norm(four));
}

Swin::Swin(const SwinOptions& options, const VisionBuild& build) : options_(options) {
  const size_t count = options.depths.size();
  base::require(build.whole || count == 1, "swin: a layer_stack must have one stage, found {}", count);
  const std::vector<core::Grid> grids = options.grids(options.image_size[0], options.image_size[1]);
  const int64_t layers_in_all = std::accumulate(options.depths.begin(), options.depths.end(), int64_t{0});
  const double std = options.init_std;
  if (build.whole) {
    patches_ = layers::PatchEmbedding(build.scope / "patch_embedding", options.in_channels, options.dim,
                                      options.patch_size, options.patch_size, 0, std);
    patch_norm_ = layers::LayerNorm(build.scope / "patch_norm", options.dim, options.norm_eps);
  }
  for (size_t s = 0; s < count; ++s) {
    const int64_t dim = options.dim_of(s), hidden = std::llround(options.mlp_ratio * static_cast<double>(dim));
    if (s > 0) {
      const layers::Scope at = build.scope / "stages" / static_cast<int64_t>(s) / "merging";
      mergings_.push_back({layers::LayerNorm(at / "norm", 2 * dim, options.norm_eps),
                           layers::Linear(at / "reduction", 2 * dim, dim, false, std)});
    }
    windows_.push_back(options.window(grids[s]));
    StageBuild stage{dim,
                     options.num_heads[s],
                     options.norm_eps,
                     std,
                     options.drop_path,
                     layers_in_all,
                     {},
                     {windows_[s], 0, 0, 0, true},
                     {}};
    stage.core = base::Node::table({{"type", "shifted_window"}, {"qkv_bias", options.qkv_bias}});
    stage.core.set("window_size", base::Node::array({windows_[s].height, windows_[s].width}));
    stage.make_feed_forward = [&](const layers::Scope& scope) {
      const layers::FeedForward ffn(scope, dim, hidden, ops::Activation::gelu, std);
      return [ffn](const at::Tensor& rows, const core::RealCells&) { return ffn(rows); };
    };
    add_stage(build, options.depths[s], stage);
  }
  if (build.whole) final_norm_ = layers::LayerNorm(build.scope / "final_norm", dim(), options.norm_eps);
}

/// Rows of an image inside a larger one, which is cut into windows.
struct Swin::Windows {
  core::Grid image;  ///< of the rows
  core::WindowCut cut;
  core::Grid offset = {};  ///< of the image in the larger one
  at::Tensor valid = {};   ///< [B*n,A] of the windows; undefined: no padding

  at::Tensor widened(const at::Tensor& rows) const {
    const core::Grid& whole = cut.image;
    if (whole.size() == image.size()) return rows;
    return at::constant_pad_nd(rows.unflatten(1, {image.height, image.width}),
                               {0, 0, offset.width, whole.width - offset.width - image.width, offset.height,
                                whole.height - offset.height - image.height})
        .flatten(1, 2);
  }
  at::Tensor narrowed(const at::Tensor& rows) const {
    const core::Grid& whole = cut.image;
    if (whole.size() == image.size()) return rows;
    return rows.unflatten(1, {whole.height, whole.width})
        .narrow(1, offset.height, image.height)
        .narrow(2, offset.width, image.width)
        .flatten(1, 2);
  }
};

Swin::Windows Swin::windows_of(size_t stage, const core::RealCells& cells, const core::BackboneInput& input,
                               bool shifted) const {
  const core::Grid grid = cells.grid;
  if (input.image_sizes.empty()) {
    const core::Grid window{std::min(windows_[stage].height, grid.height), std::min(windows_[stage].width, grid.width)};
    const auto shift = [&](int64_t size, int64_t of) { return shifted && size > of ? of / 2 : 0; };
    return {grid, {grid, window, {shift(grid.height, window.height), shift(grid.width, window.width)}}};
  }
  // No row comes around: a window of the first rows holds nothing else.
  const core::Grid window = windows_[stage];
  const auto offset = [&](int64_t of) { return shifted && of > 1 ? of - of / 2 : 0; };
  Windows windows{grid, {}, {offset(window.height), offset(window.width)}};
  const core::Grid moved{windows.offset.height + grid.height, windows.offset.width + grid.width};
  windows.cut = {core::WindowCut{moved, window}.padded(), window};
  if (windows.cut.image.size() == grid.size() && cells.all()) return windows;
  const at::Tensor real = cells.all() ? at::ones({input.pixels.size(0), grid.size()},
                                                 at::TensorOptions().dtype(at::kBool).device(input.pixels.device()))
                                      : cells.mask(input.pixels.device());
  windows.valid = windows.cut.cut(windows.widened(real.unsqueeze(-1).to(at::kByte))).squeeze(-1).to(at::kBool);
  return windows;
}

at::Tensor Swin::run_windows(size_t stage, const at::Tensor& h, const core::RealCells& cells,
                             const core::BackboneInput& input, const core::State& state,
                             core::State::Children& states) const {
  const Windows plain = windows_of(stage, cells, input, false), moved = windows_of(stage, cells, input, true);
  const core::Grid window = plain.cut.window;
  at::Tensor regions;  // the same for all shifted layers of the stage
  int64_t in_stage = 0;
  return run_stage(static_cast<int64_t>(stage), h, cells, input, states,
                   [&](const PyramidLayer& layer, int64_t number, const at::Tensor& rows) {
                     RECORD_USER_SCOPE("attention");
                     const Windows& windows = in_stage++ % 2 == 1 ? moved : plain;
                     core::AttendTable table({core::SpanKind::tokens, window.size()}, core::Rule::all());
                     table.set_valid(windows.valid);
                     core::AttentionInput attention{windows.cut.cut(windows.widened(rows)), {}, table, input.mode};
                     core::ImageRows image{window, &windows.cut};
                     attention.image = &image;
                     if (windows.cut.is_shifted()) {
                       const core::Grid whole = windows.cut.padded();
                       if (!regions.defined()) {
                         regions = ops::window_region_bias(whole.height, whole.width, window.height, window.width,
                                                           windows.cut.shift.height, windows.cut.shift.width,
                                                           rows.options().requires_grad(false));
                       }
                       image.window_bias = regions;
                     }
                     const core::State child = state.child(layer.attention_name);
                     if (input.observe) input.observe(number, *layer.attention, attention, child);
                     core::AttentionResult result = layer.attention->forward(attention, child);
                     result.y = windows.narrowed(windows.cut.join(result.y));
                     return result;
                   });
}

core::BackboneResult Swin::forward(const core::BackboneInput& input, const core::State& state) const {
  core::State::Children states;
  std::vector<core::ImageLevel> levels;
  const bool embeds = patches_.weight.defined();
  std::vector<core::Grid> grids;
  std::vector<core::RealCells> cells;
  at::Tensor h;
  if (embeds) {
    RECORD_USER_SCOPE("embedding");
    const at::Tensor pixels = real_pixels("swin", input, options_.in_channels);
    const int64_t patch = options_.patch_size, height = pixels.size(2), width = pixels.size(3);
    base::require(height > 0 && width > 0 && height % patch == 0 && width % patch == 0,
                  "[swin] expected images whose height and width are multiples of patch_size = {}, found {} x {}",
                  patch, height, width);
    grids = options_.grids(height, width);
    cells = real_cells("swin", input, grids);
    h = patch_norm_(patches_(pixels));
  } else {
    grids = options_.grids(options_.image_size[0], options_.image_size[1]);
    base::require(input.rows.defined() && input.rows.dim() == 3 && input.rows.size(1) == grids[0].size() &&
                      input.rows.size(2) == dim(),
                  "[swin] expected rows [B,{},{}], found {}", grids[0].size(), dim(),
                  input.rows.defined() ? c10::str(input.rows.sizes()) : "none");
    for (const core::Grid& grid : grids) cells.push_back({grid, {}});
    h = input.rows;
  }
  tell(input, "embed", h);
  for (size_t s = 0; s < grids.size(); ++s) {
    if (s > 0) {
      RECORD_USER_SCOPE("embedding");
      h = mergings_[s - 1](cells[s - 1].keep(h), grids[s - 1]);
      tell(input, fmt::format("stages.{}.embed", s), h);
    }
    h = run_windows(s, h, cells[s], input, state, states);
    if (s + 1 < grids.size()) add_level(input, h, cells[s], levels);
  }
  if (embeds) {
    h = final_norm_(h);
    tell(input, "final_norm", h);
  }
  add_level(input, h, cells.back(), levels);
  return {h, core::State::list(std::move(states)), {}, grids.back(), std::move(levels)};
}

}  // namespace mnemo::backbones
