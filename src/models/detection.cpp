#include "models/detection.h"

#include <torch/types.h>

#include "backbones/registry.h"
#include "backbones/vision_build.h"
#include "base/error.h"
#include "heads/detection/simple_pyramid.h"
#include "models/make_attention.h"

namespace mnemo::models {
namespace {

/// Rows [B,N,D] of a grid as a map [B,D,h,w].
at::Tensor map_of(const core::ImageLevel& level) {
  return level.rows.transpose(1, 2).reshape({level.rows.size(0), -1, level.grid.height, level.grid.width});
}

/// Pixels with zeros to the right and below, up to multiples of `divisor`.
at::Tensor padded_to(const at::Tensor& pixels, int64_t divisor) {
  const auto missing = [&](int64_t size) { return (divisor - size % divisor) % divisor; };
  const int64_t below = missing(pixels.size(2)), right = missing(pixels.size(3));
  return below == 0 && right == 0 ? pixels : at::constant_pad_nd(pixels, {0, right, 0, below});
}

std::vector<at::Tensor> boxes_of(const std::vector<heads::Proposals>& proposals) {
  std::vector<at::Tensor> boxes;
  for (const heads::Proposals& each : proposals) boxes.push_back(each.boxes);
  return boxes;
}

/// Labels counted from 1, as the second stage has them, or back.
at::Tensor shifted(const at::Tensor& labels, int64_t by) { return labels + by; }

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
  if (options_.simple_pyramid) {
    neck_ = std::make_unique<heads::SimplePyramid>(options_.fpn, options_.first_stage, root / "neck");
  } else {
    neck_ = std::make_unique<heads::Fpn>(options_.fpn, root / "neck");
  }
  if (options_.type == DetectorType::retinanet) {
    retinanet_.emplace(options_.retinanet, root / "head");
  } else {
    rpn_.emplace(options_.rpn, root / "rpn");
    roi_.emplace(options_.roi, root);
  }
}

core::State Detector::initial_state(int64_t batch) const {
  return committed_.apply(core::State::list({{"layers", backbone_->initial_state(batch)}}));
}

Detector::Maps Detector::maps(const DetectionImages& images, core::Mode mode) const {
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
    input.pixels = padded_to(images.pixels, options_.size_divisor);
  }
  core::BackboneResult result = backbone_->forward(input, initial_state(batch).child("layers"));
  std::vector<at::Tensor> stages;
  std::vector<core::RealCells> real;
  for (size_t s = options_.simple_pyramid ? 0 : options_.first_stage; s < result.levels.size(); ++s) {
    stages.push_back(map_of(result.levels[s]));
    if (!input.image_sizes.empty()) real.push_back(result.levels[s].real);
  }
  return {(*neck_)(stages, real),
          neck_->real(real),
          core::State::list({{"layers", std::move(result.state)}}),
          {input.pixels.size(2), input.pixels.size(3)}};
}

DetectionLosses Detector::losses(const DetectionImages& images, std::span<const heads::ObjectTargets> targets,
                                 const heads::DrawOrder& order) const {
  base::require(targets.size() == images.sizes.size(), "detector: expected targets of {} images, found {}",
                images.sizes.size(), targets.size());
  Maps maps = this->maps(images, core::Mode::train);
  if (retinanet_) {
    const auto losses = retinanet_->losses((*retinanet_)(maps.levels, maps.image, maps.real), targets);
    return {{{"cls", losses.cls}, {"box", losses.box}}, std::move(maps.state)};
  }
  const heads::Rpn::Output output = (*rpn_)(maps.levels, maps.image, maps.real);
  const std::vector<heads::Proposals> proposals = heads::rpn_proposals(options_.rpn, output, images.sizes,
                                                                       options_.rpn.training);
  const heads::Rpn::Losses first = heads::rpn_losses(options_.rpn, output, targets, order);
  std::vector<heads::ObjectTargets> objects(targets.begin(), targets.end());
  std::vector<heads::SampledRegions> regions;
  for (size_t b = 0; b < objects.size(); ++b) {
    objects[b].labels = shifted(objects[b].labels, 1);
    regions.push_back(roi_->sample(proposals[b].boxes, objects[b], static_cast<int64_t>(b), order));
  }
  const heads::RoiHeads::Losses second = roi_->losses(maps.levels, regions, objects, maps.real);
  DetectionLosses out{
      {{"objectness", first.objectness}, {"rpn_box", first.box}, {"cls", second.cls}, {"box", second.box}},
      std::move(maps.state)};
  if (second.mask.defined()) out.parts.emplace_back("mask", second.mask);
  return out;
}

std::vector<heads::Detections> Detector::detect(const DetectionImages& images) const {
  const at::NoGradGuard no_grad;
  const Maps maps = this->maps(images, core::Mode::evaluate);
  if (retinanet_) return retinanet_->detect((*retinanet_)(maps.levels, maps.image, maps.real), images.sizes);
  const std::vector<at::Tensor> boxes = boxes_of(heads::rpn_proposals(
      options_.rpn, (*rpn_)(maps.levels, maps.image, maps.real), images.sizes, options_.rpn.evaluation));
  std::vector<heads::Detections> found = roi_->detect(maps.levels, boxes, roi_->boxes(maps.levels, boxes, maps.real),
                                                      images.sizes, maps.real);
  for (heads::Detections& each : found) each.labels = shifted(each.labels, -1);
  return found;
}

}  // namespace mnemo::models
