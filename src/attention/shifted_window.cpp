#include "attention/shifted_window.h"

#include <torch/types.h>

#include <cmath>

#include "attention/linear_in_values.h"
#include "base/error.h"
#include "ops/image/window_attention.h"
#include "ops/naive/image.h"

namespace mnemo::attention {

void ShiftedWindowOptions::validate(const base::Where& where) const {
  where.require(window_size.size() == 2, "window_size", "expected [height, width], found {} numbers",
                window_size.size());
}

ShiftedWindow::ShiftedWindow(const Options& options, const core::AttentionBuild& build)
    : ProjectedAttention(build, options.qkv_bias, true),
      position_(build.attn, options.window_size[0], options.window_size[1], build.num_heads, build.init_std) {
  base::require(!build.causal, "shifted_window: not causal, because all rows of a window see each other");
}

void ShiftedWindow::require_window(const core::AttentionInput& input) const {
  base::require(input.image != nullptr && input.grid().size() == input.x.size(1),
                "[shifted_window] expected only the rows of a window, found {} rows and a window of {}x{}",
                input.x.size(1), input.grid().height, input.grid().width);
  base::require(input.ends && input.table.open() && input.table.num_context() == 0,
                "[shifted_window] expected a full attention table without context rows");
}

at::Tensor ShiftedWindow::window_bias(const core::AttentionInput& input) {
  const at::Tensor &regions = input.image->window_bias, &valid = input.table.valid();
  if (!valid.defined()) return regions;
  const int64_t windows = input.x.size(0), rows = input.x.size(1);
  // Finite, so that a query without any key has an output; its weight of any other key is 0.
  constexpr double kPadding = -1e9;
  const at::Tensor bias = at::zeros({windows, 1, rows}, input.x.options().requires_grad(false))
                              .masked_fill_(valid.logical_not().unsqueeze(1), kPadding);
  if (!regions.defined()) return bias.expand({-1, rows, -1}).contiguous();
  return (bias.view({-1, regions.size(0), 1, rows}) + regions).flatten(0, 1);
}

core::CoreAttention::Heads ShiftedWindow::heads(const core::AttentionInput& input, const core::State& state) const {
  require_window(input);
  const auto [q, k, v] = maps_.heads(input.x, input.x);
  return {maps_.join(ops::window_attention(q, k, v, position_(input.grid().height, input.grid().width),
                                           window_bias(input), 1.0 / std::sqrt(static_cast<double>(maps_.head_dim)))),
          state};
}

core::AttentionView ShiftedWindow::inspect(const core::AttentionInput& input, const core::State&,
                                           const core::State&) const {
  require_window(input);
  return inspect_linear_in_values(input, maps_.num_heads, [&](const ops::ReplaceValues& replace) {
    const auto [q, k, v] = maps_.heads(input.x, input.x);
    return layers::AttentionProjections::join(
        ops::window_attention_naive(q, k, ops::replaced(replace, v), position_(input.grid().height, input.grid().width),
                                    window_bias(input), 1.0 / std::sqrt(static_cast<double>(maps_.head_dim))));
  });
}

}  // namespace mnemo::attention
