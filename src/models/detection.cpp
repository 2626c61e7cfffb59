#include "models/detection.h"

#include <torch/types.h>

#include "backbones/registry.h"
#include "backbones/vision_build.h"
#include "base/error.h"
#include "models/make_attention.h"

namespace mnemo::models {
namespace {

/// Pixels with zeros to the right and below, up to multiples of `divisor`.
at::Tensor padded_to(const at::Tensor& pixels, int64_t divisor) {
  const auto missing = [&](int64_t size) { return (divisor - size % divisor) % divisor; };
  const int64_t below = missing(pixels.size(2)), right = missing(pixels.size(3));
  return below == 0 && right == 0 ? pixels : at::constant_pad_nd(pixels, {0, right, 0, below});
}

}  // namespace

at::Tensor DetectionLosses::sum() const {
  at::Tensor all = parts[0].second;
  for (size_t i = 1; i < parts.size(); ++i) all = all + parts[i].second;
  return all;
}

Detector::Detector(const DetectorOptions& options, uint64_t seed, at::ScalarType dtype, at::Device device)
    : options_(options), parameters_(seed, dtype, {}, device) {
  const layers::Scope root = parameters_.root();
  const auto attention = [&](const base::Node& core, const core::AttentionBuild& build,
                             const core::ImageLayout& image) {
    return make_image_attention(core, options_.model.memory, build, image);
  };
  const backbones::VisionBuild build{root / "backbone", attention, options_.model.adapters, true};
  backbone_ = backbones::make_vision_backbone(options_.model.backbone.vision(), build);
  require_layers(options_.model.memory, backbone_->num_layers());
  head_.emplace(options_, stages_of(options_.model.backbone.vision()).stride, root);
}

core::State Detector::initial_state(int64_t batch) const {
  return committed_.apply(core::State::list({{"layers", backbone_->initial_state(batch)}}));
}

Detector::Rows Detector::rows(const DetectionImages& images, core::Mode mode) const {
  const int64_t batch = images.pixels.size(0);
  base::require(images.pixels.dim() == 4 && static_cast<size_t>(batch) == images.sizes.size(),
                "detector: expected pixels [B,C,H,W] and a size for each image, found {} and {} sizes",
                c10::str(images.pixels.sizes()), images.sizes.size());
  core::BackboneInput input;
  input.pixels = images.pixels;
  input.mode = mode;
  input.levels = true;
  if (options_.padding == DetectorPadding::masked) {
    for (const auto& [height, width] : images.sizes) input.image_sizes.push_back({height, width});
    input.pixels = padded_to(images.pixels, head_->divisor());
  }
  core::BackboneResult result = backbone_->forward(input, initial_state(batch).child("layers"));
  return {head_->rows(result.levels), core::State::list({{"layers", std::move(result.state)}}),
          head_->images({input.pixels.size(2), input.pixels.size(3)}, images.sizes)};
}

DetectionLosses Detector::losses(const DetectionImages& images, std::span<const heads::ObjectTargets> targets,
                                 const heads::DrawOrder& order) const {
  Rows rows = this->rows(images, core::Mode::train);
  return {head_->losses(rows.rows, rows.images, targets, order), std::move(rows.state)};
}

std::vector<heads::Detections> Detector::detect(const DetectionImages& images) const {
  const at::NoGradGuard no_grad;
  const Rows rows = this->rows(images, core::Mode::evaluate);
  return head_->detect(rows.rows, rows.images);
}

}  // namespace mnemo::models
