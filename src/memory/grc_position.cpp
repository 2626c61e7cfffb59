#include "memory/grc_position.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "ops/image/group_conv.h"

namespace mnemo::memory {

GrcPosition::GrcPosition(const layers::Scope& scope, int64_t dim, int64_t channels, double std) {
  base::require(channels > 0 && dim % channels == 0,
                "grc: position \"cpe\" needs dim = {} to be a multiple of the {} cached channels", dim, channels);
  weight_ = scope.add("weight", {dim, dim / channels, 3, 3}, layers::normal(std));
  bias_ = scope.add("bias", {dim}, layers::constant(0.0), layers::ParameterKind::bias);
}

at::Tensor GrcPosition::operator()(const at::Tensor& x, core::Grid grid, int64_t class_tokens) const {
  const int64_t in_front = x.size(1) - grid.size();
  if (in_front < 0 || (class_tokens >= 0 && in_front != class_tokens)) {
    throw base::ShapeError(fmt::format("[grc] expected {} + {}x{} rows for the position convolution, found {}",
                                       std::max<int64_t>(class_tokens, 0), grid.height, grid.width, x.size(1)));
  }
  const at::Tensor out = ops::group_conv(x.narrow(1, in_front, grid.size()), grid.height, grid.width, weight_, bias_);
  return in_front == 0 ? out : at::constant_pad_nd(out, {0, 0, in_front, 0});
}

at::Tensor real_rows(const core::AttentionInput& input) {
  const at::Tensor& valid = input.table.valid();
  if (!valid.defined() || input.image == nullptr) return input.x;
  const at::Tensor own = valid.narrow(1, input.table.num_context(), input.x.size(1));
  return input.x.masked_fill(own.logical_not().unsqueeze(-1), 0.0);
}

GrcPositionAlone::GrcPositionAlone(const GrcOptions& options, const core::AttentionBuild& build,
                                   std::unique_ptr<core::CoreAttention> inner)
    : WrappedAttention(std::move(inner)),
      position_(build.attn / "grc" / "cpe", build.dim, options.channels(build.dim), build.init_std) {}

core::AttentionResult GrcPositionAlone::forward(const core::AttentionInput& input, const core::State& state) const {
  core::AttentionResult result = inner().forward(input, state);
  result.y = result.y + position_(real_rows(input), input.grid(), -1);
  return result;
}

}  // namespace mnemo::memory
