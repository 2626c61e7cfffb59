#include "heads/detection/simple_pyramid.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/image/conv3x3.h"

namespace mnemo::heads {
namespace {

constexpr double kNormEps = 1e-6;

at::Tensor norm_cells(const layers::LayerNorm& norm, const at::Tensor& map) {
  return norm(map.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

/// The weight [in,out,2,2] of a transposed convolution, and its bias.
at::Tensor deconv(const layers::Scope& scope, int64_t in, int64_t out, at::Tensor& bias) {
  bias = scope.add("bias", {out}, layers::constant(0.0), layers::ParameterKind::bias);
  return scope.add("weight", {in, out, 2, 2}, kaiming_uniform(out * 4));
}

at::Tensor doubled(const at::Tensor& map, const at::Tensor& weight, const at::Tensor& bias) {
  return at::conv_transpose2d(map, weight, bias, int64_t{2});
}

}  // namespace

SimplePyramid::SimplePyramid(const FpnOptions& options, size_t first, const layers::Scope& scope) {
  base::ensure(options.in_channels.size() == 1, "a simple pyramid reads one map, found {}", options.in_channels.size());
  const int64_t in = options.in_channels[0], width = options.out_channels;
  base::require(in % 4 == 0, "simple pyramid: expected a backbone whose width is a multiple of 4, found {}", in);
  for (size_t number = first; number < kLevels; ++number) {
    const layers::Scope at = scope / "levels" / static_cast<int64_t>(number);
    Level level;
    level.number = number;
    int64_t own = in;
    if (number < 2) level.up1 = deconv(at / "up1", in, own = in / 2, level.up1_bias);
    if (number == 0) {
      level.up_norm = layers::LayerNorm(at / "up_norm", own, kNormEps);
      level.up2 = deconv(at / "up2", in / 2, own = in / 4, level.up2_bias);
    }
    level.lateral = (at / "lateral").add("weight", {width, own, 1, 1}, kaiming_uniform(own));
    level.lateral_norm = layers::LayerNorm(at / "lateral_norm", width, kNormEps);
    level.output = (at / "output").add("weight", {width, width, 3, 3}, kaiming_uniform(width * 9));
    level.output_norm = layers::LayerNorm(at / "output_norm", width, kNormEps);
    levels_.push_back(std::move(level));
  }
  extra_ = ExtraMaps(options, scope);
}

at::Tensor SimplePyramid::resized(const Level& level, const at::Tensor& map) {
  if (level.number == 2) return map;
  if (level.number == 3) return at::max_pool2d(map, {2, 2});
  const at::Tensor once = doubled(map, level.up1, level.up1_bias);
  if (level.number == 1) return once;
  return doubled(at::gelu(norm_cells(level.up_norm, once)), level.up2, level.up2_bias);
}

std::vector<core::RealCells> SimplePyramid::own_real(RealLevels maps) const {
  std::vector<core::RealCells> all;
  if (maps.empty()) return all;
  const core::RealCells& map = maps[0];
  const auto times = [](const core::Grid& grid, int64_t by) { return core::Grid{grid.height * by, grid.width * by}; };
  for (const Level& level : levels_) {
    if (level.number == 3) {
      all.push_back(map.reduced(2, {map.grid.height / 2, map.grid.width / 2}));
      continue;
    }
    const int64_t by = int64_t{4} >> level.number;
    core::RealCells finer{times(map.grid, by), {}};
    for (const core::Grid& image : map.images) finer.images.push_back(times(image, by));
    all.push_back(std::move(finer));
  }
  return all;
}

std::vector<at::Tensor> SimplePyramid::operator()(std::span<const at::Tensor> maps, RealLevels real) const {
  base::ensure(maps.size() == 1, "a simple pyramid reads one map, found {}", maps.size());
  const std::vector<core::RealCells> own = own_real(real);
  std::vector<at::Tensor> out;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const Level& level = levels_[l];
    const at::Tensor lateral = norm_cells(level.lateral_norm,
                                          at::conv2d(resized(level, keep_real(maps[0], real, 0)), level.lateral));
    out.push_back(norm_cells(level.output_norm, ops::conv3x3(keep_real(lateral, own, l), level.output, {})));
  }
  extra_.append(out, maps[0], own);
  return out;
}

}  // namespace mnemo::heads
