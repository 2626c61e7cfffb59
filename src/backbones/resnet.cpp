#include "backbones/resnet.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace mnemo::backbones {

void ResnetOptions::validate(const base::Where& where) const {
  where.require(image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", image_size.size());
  where.require(!depths.empty() && depths.size() <= 8, "depths", "expected 1 to 8 stages, found {}", depths.size());
  where.require(frozen_stages <= static_cast<int64_t>(depths.size()), "frozen_stages",
                "expected at most the {} stages of depths, found {}", depths.size(), frozen_stages);
}

std::vector<core::Grid> ResnetOptions::grids(int64_t height, int64_t width) const {
  const auto half = [](const core::Grid& grid) { return core::Grid{(grid.height + 1) / 2, (grid.width + 1) / 2}; };
  std::vector<core::Grid> all = {half(half({height, width}))};
  while (all.size() < depths.size()) all.push_back(half(all.back()));
  return all;
}

Resnet::Unit Resnet::make_unit(const layers::Scope& scope, const std::string& conv, const std::string& norm, int64_t in,
                               int64_t out, int64_t size, int64_t stride, Frozen frozen) const {
  const double std = std::sqrt(2.0 / static_cast<double>(out * size * size));  // He et al. 2015, by fan out
  Unit unit;
  unit.weight = (scope / conv).add("weight", {out, in, size, size}, layers::normal(std));
  unit.stride = stride;
  const bool running = options_.batch_norms == ResnetOptions::BatchNorms::running;
  unit.norm = BatchNorm({options_.norm_eps, options_.norm_momentum, running, frozen != Frozen::none}, scope / norm,
                        out);
  if (frozen == Frozen::all) unit.weight.set_requires_grad(false);
  return unit;
}

Resnet::Block Resnet::make_block(const layers::Scope& scope, int64_t in, size_t stage, int64_t stride,
                                 Frozen frozen) const {
  const int64_t inner = options_.dim << stage, out = options_.dim_of(stage);
  Block block;
  if (options_.block == ResnetOptions::Block::basic) {
    block.units.push_back(make_unit(scope, "conv1", "norm1", in, inner, 3, stride, frozen));
    block.units.push_back(make_unit(scope, "conv2", "norm2", inner, out, 3, 1, frozen));
  } else {
    block.units.push_back(make_unit(scope, "conv1", "norm1", in, inner, 1, 1, frozen));
    block.units.push_back(make_unit(scope, "conv2", "norm2", inner, inner, 3, stride, frozen));
    block.units.push_back(make_unit(scope, "conv3", "norm3", inner, out, 1, 1, frozen));
  }
  if (stride != 1 || in != out)
    block.shortcut = make_unit(scope / "shortcut", "conv", "norm", in, out, 1, stride, frozen);
  return block;
}

Resnet::Resnet(const ResnetOptions& options, const VisionBuild& build) : options_(options) {
  base::require(build.whole, "resnet: does not support a layer_stack; expected kind = \"model\"");
  const Frozen trained = options.batch_norms == ResnetOptions::BatchNorms::frozen ? Frozen::norms : Frozen::none;
  stem_ = make_unit(build.scope / "stem", "conv", "norm", options.in_channels, options.dim, 7, 2,
                    options.frozen_stages > 0 ? Frozen::all : trained);
  int64_t in = options.dim;
  for (size_t s = 0; s < options.depths.size(); ++s) {
    const Frozen frozen = static_cast<int64_t>(s) < options.frozen_stages ? Frozen::all : trained;
    const layers::Scope blocks = build.scope / "stages" / static_cast<int64_t>(s) / "blocks";
    std::vector<Block> stage;
    for (int64_t n = 0; n < options.depths[s]; ++n) {
      stage.push_back(make_block(blocks / n, in, s, s > 0 && n == 0 ? 2 : 1, frozen));
      in = options.dim_of(s);
    }
    stages_.push_back(std::move(stage));
  }
}

std::vector<const BatchNorm*> Resnet::norms() const {
  std::vector<const BatchNorm*> all = {&stem_.norm};
  for (const std::vector<Block>& stage : stages_) {
    for (const Block& block : stage) {
      for (const Unit& unit : block.units) all.push_back(&unit.norm);
      if (block.shortcut.weight.defined()) all.push_back(&block.shortcut.norm);
    }
  }
  return all;
}

core::State Resnet::initial_state(int64_t) const {
  core::State::Children children;
  for (const BatchNorm* norm : norms()) children.emplace_back(norm->name(), norm->initial_state());
  return core::State::list(std::move(children));
}

const core::Attention& Resnet::attention(int64_t) const { throw base::InternalError("a resnet has no attention"); }
const std::string& Resnet::layer_name(int64_t) const { throw base::InternalError("a resnet has no attention"); }

/// One forward pass: the state before it, and the states after it in the order of initial_state().
struct Resnet::Pass {
  const core::State& before;
  core::Mode mode = core::Mode::evaluate;
  core::State::Children after = {};

  /// norm(conv(x)); `real`: cells of x, whose padding a kernel of several cells reads as zeros; `to`: of the result.
  at::Tensor unit(const Unit& unit, const at::Tensor& x, const core::RealCells& real, const core::RealCells& to) {
    const int64_t padding = unit.weight.size(2) / 2;
    const at::Tensor y = at::conv2d(padding > 0 ? real.keep_map(x) : x, unit.weight, {}, unit.stride, padding);
    const core::State own = before.child(unit.norm.name());
    BatchNormState statistics = own.as<BatchNormState>();
    const at::Tensor out = unit.norm(y, statistics, mode, to);
    after.emplace_back(unit.norm.name(), std::move(statistics));
    return out;
  }

  at::Tensor block(const Block& block, const at::Tensor& x, const core::RealCells& real, const core::RealCells& to) {
    at::Tensor h = x;
    core::RealCells now = real;
    for (size_t k = 0; k < block.units.size(); ++k) {
      const core::RealCells& next = block.units[k].stride > 1 ? to : now;
      h = unit(block.units[k], h, now, next);
      if (k + 1 < block.units.size()) h = h.relu_();
      if (block.units[k].stride > 1) now = to;
    }
    return (h + (block.shortcut.weight.defined() ? unit(block.shortcut, x, real, to) : x)).relu_();
  }
};

core::BackboneResult Resnet::forward(const core::BackboneInput& input, const core::State& state) const {
  const at::Tensor pixels = real_pixels("resnet", input, options_.in_channels);
  const int64_t height = pixels.size(2), width = pixels.size(3);
  base::require(height > 0 && width > 0, "[resnet] expected an image, found one of {} x {}", height, width);
  const auto cells = [&](const core::Grid& grid) {
    return core::RealCells::of("resnet", input.image_sizes, height, width, grid);
  };
  const std::vector<core::Grid> grids = options_.grids(height, width);
  const bool frozen_stem = options_.frozen_stages > 0, with_grad = at::GradMode::is_enabled();
  Pass pass{state, input.mode};
  std::vector<core::ImageLevel> levels;
  at::Tensor x;
  core::RealCells real = cells(grids[0]);
  {
    RECORD_USER_SCOPE("embedding");
    const at::AutoGradMode grad(with_grad && !frozen_stem);
    const core::RealCells half = cells({(height + 1) / 2, (width + 1) / 2});
    x = pass.unit(stem_, pixels, cells({height, width}), half).relu_();
    x = at::max_pool2d(half.keep_map(x), {3, 3}, {2, 2}, {1, 1});
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    const at::AutoGradMode grad(with_grad && static_cast<int64_t>(s) >= options_.frozen_stages);
    const core::RealCells own = cells(grids[s]);
    RECORD_USER_SCOPE("convolutions");
    for (const Block& block : stages_[s]) {
      x = pass.block(block, x, real, own);
      real = own;
    }
    const at::Tensor rows = x.flatten(2).transpose(1, 2);
    if (input.hidden) input.hidden(fmt::format("stages.{}", s), rows);
    if (input.levels) levels.push_back({rows, grids[s], own});
  }
  return {x.flatten(2).transpose(1, 2), core::State::list(std::move(pass.after)), {}, grids.back(), std::move(levels)};
}

}  // namespace mnemo::backbones
