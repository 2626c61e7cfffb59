#include "backbones/vision_build.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/image/grid.h"

namespace mnemo::backbones {

at::Tensor real_pixels(const char* who, const core::BackboneInput& input, int64_t channels) {
  const at::Tensor& pixels = input.pixels;
  base::require(pixels.defined() && pixels.dim() == 4 && pixels.size(1) == channels,
                "[{}] expected pixels [B,{},H,W], found {}", who, channels,
                pixels.defined() ? c10::str(pixels.sizes()) : "none");
  if (input.image_sizes.empty()) return pixels;
  base::require(static_cast<int64_t>(input.image_sizes.size()) == pixels.size(0),
                "[{}] expected sizes of {} images, found {}", who, pixels.size(0), input.image_sizes.size());
  const int64_t height = pixels.size(2), width = pixels.size(3);
  return core::RealCells::of(who, input.image_sizes, height, width, {height, width}).keep_map(pixels);
}

std::vector<core::RealCells> real_cells(const char* who, const core::BackboneInput& input,
                                        const std::vector<core::Grid>& grids) {
  std::vector<core::RealCells> all;
  for (const core::Grid& grid : grids) {
    if (input.image_sizes.empty()) {
      all.push_back({grid, {}});
    } else {
      all.push_back(core::RealCells::of(who, input.image_sizes, input.pixels.size(2), input.pixels.size(3), grid));
    }
  }
  return all;
}

core::AttendTable open_table(int64_t class_tokens, const core::Grid& grid) {
  using core::SpanKind;
  core::AttendTable table({SpanKind::tokens, grid.size()}, core::Rule::all());
  if (class_tokens == 0) return table;
  table.prepend_rows({SpanKind::class_token, class_tokens});
  for (const auto query : {SpanKind::class_token, SpanKind::tokens}) {
    for (const auto key : {SpanKind::class_token, SpanKind::tokens}) table.set_rule(query, key, core::Rule::all());
  }
  return table;
}

at::Tensor positions_for(const core::Grid& grid, const at::Tensor& table, const core::Grid& trained,
                         ops::GridResampling method) {
  if (grid.height == trained.height && grid.width == trained.width) return table;
  const int64_t before = table.size(0) - trained.size();
  const at::Tensor rows = ops::resample_grid(table.narrow(0, before, trained.size()), trained.height, trained.width,
                                             grid.height, grid.width, method);
  return before == 0 ? rows : at::cat({table.narrow(0, 0, before), rows}, 0);
}

at::Tensor positions_for(const core::RealCells& cells, const at::Tensor& table, const core::Grid& trained,
                         ops::GridResampling method) {
  if (cells.all()) return positions_for(cells.grid, table, trained, method);
  const int64_t before = table.size(0) - trained.size();
  std::vector<at::Tensor> images;
  for (const core::Grid& own : cells.images) {
    const at::Tensor rows = positions_for(own, table, trained, method).narrow(0, before, own.size());
    const at::Tensor padded = at::constant_pad_nd(
        rows.unflatten(0, {own.height, own.width}),
        {0, 0, 0, cells.grid.width - own.width, 0, cells.grid.height - own.height});
    images.push_back(at::cat({table.narrow(0, 0, before), padded.flatten(0, 1)}, 0));
  }
  return at::stack(images, 0);
}

}  // namespace mnemo::backbones
