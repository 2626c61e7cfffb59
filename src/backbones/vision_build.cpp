#include "backbones/vision_build.h"

#include <torch/types.h>

#include "ops/image/grid.h"

namespace mnemo::backbones {

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

}  // namespace mnemo::backbones
