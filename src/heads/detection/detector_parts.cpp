#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "heads/detection/detector_head.h"
#include "heads/detection/simple_pyramid.h"

namespace mnemo::heads {
namespace {

constexpr size_t kStages = 4;
constexpr int64_t kExtraMaps = 2;
constexpr double kRetinaNetScale = RetinaNetHeadOptions().anchor_scale, kRpnScale = FasterRcnnOptions().anchor_scale;

/// Anchors of maps whose strides double, of sizes that are multiples of the stride.
AnchorOptions doubling_anchors(int64_t stride, size_t levels, const std::vector<double>& multiples) {
  AnchorOptions out;
  out.round = false;
  for (size_t l = 0; l < levels; ++l, stride *= 2) {
    ops::AnchorLevel level{{}, {0.5, 1.0, 2.0}};
    for (const double multiple : multiples) level.sizes.push_back(multiple * static_cast<double>(stride));
    out.levels.push_back(std::move(level));
    out.strides.emplace_back(stride, stride);
  }
  return out;
}

void set_retinanet(DetectorParts& out, const BackboneStages& stages, int64_t num_classes) {
  out.first_stage = 1;
  if (out.simple_pyramid) {
    out.fpn.in_channels = stages.widths;
    out.fpn.extra = FpnOptions::Extra::p6p7_from_p;
  } else {
    out.fpn.in_channels = {stages.widths.begin() + 1, stages.widths.end()};
    out.fpn.extra = FpnOptions::Extra::p6p7_from_c;
  }
  out.retinanet.num_classes = num_classes;
  out.retinanet.anchors = doubling_anchors(
      stages.stride * 2, kStages - 1 + kExtraMaps,
      {kRetinaNetScale, kRetinaNetScale * std::cbrt(2.0), kRetinaNetScale * std::cbrt(4.0)});
}

void set_two_stages(DetectorParts& out, const BackboneStages& stages, int64_t num_classes, bool masks) {
  out.fpn.in_channels = stages.widths;
  out.fpn.extra = FpnOptions::Extra::pool;
  out.rpn.anchors = doubling_anchors(stages.stride, kStages + 1, {kRpnScale});
  out.rpn.box_loss = out.roi.box_head.box_loss = BoxLoss::l1;
  for (size_t s = 0; s < kStages; ++s) out.roi.levels.scales.push_back(1.0 / static_cast<double>(stages.stride << s));
  out.roi.box_pool = {7, 7, 0, true};
  out.roi.mask_pool = {14, 14, 0, true};
  out.roi.box_head.num_classes = num_classes + 1;
  if (masks) out.roi.mask_head = MaskHeadOptions{.num_classes = num_classes + 1};
}

void scale_anchors(AnchorOptions& anchors, double factor) {
  for (ops::AnchorLevel& level : anchors.levels) {
    for (double& size : level.sizes) size *= factor;
  }
}

void take_torchvision_anchors(AnchorOptions& anchors) {
  for (ops::AnchorLevel& level : anchors.levels) {
    for (double& size : level.sizes) size = std::floor(size);
  }
  anchors.strides.clear();
  anchors.round = true;
}

/// Called last: it rounds anchors that have their scale.
void take_convention(DetectorParts& parts, Convention convention) {
  if (convention == Convention::mmdetection) return;
  parts.padding = DetectorPadding::seen;
  parts.paste = ops::MaskPaste::integer;
  take_torchvision_anchors(parts.retinanet.anchors);
  take_torchvision_anchors(parts.rpn.anchors);
  if (parts.fpn.extra == FpnOptions::Extra::p6p7_from_c) parts.fpn.extra = FpnOptions::Extra::p6p7_from_p;
  parts.rpn.training.after_nms = std::max<int64_t>(2000, parts.rpn.evaluation.after_nms);
  parts.roi.box_pool = {7, 7, 2, false};
  parts.roi.mask_pool = {14, 14, 2, false};
}

/// Sets the parts that the options of all types name.
void take_common(DetectorParts& parts, const DetectorHeadOptions& options) {
  parts.fpn.out_channels = parts.retinanet.in_channels = parts.rpn.in_channels = options.channels;
  parts.roi.box_head.in_channels = options.channels;
  if (parts.roi.mask_head) parts.roi.mask_head->in_channels = options.channels;
  parts.retinanet.score_thresh = parts.roi.score_thresh = options.score_thresh;
  parts.retinanet.nms_thresh = parts.roi.nms_thresh = options.nms_thresh;
  parts.retinanet.detections_per_img = parts.roi.detections_per_img = options.detections;
  parts.retinanet.topk_candidates = parts.rpn.evaluation.before_nms = options.candidates;
}

void take_two_stages(DetectorParts& parts, const FasterRcnnOptions& options) {
  take_common(parts, options);
  const BoxLoss loss = options.box_loss == FasterRcnnOptions::Loss::l1 ? BoxLoss::l1 : BoxLoss::smooth_l1;
  parts.rpn.box_loss = parts.roi.box_head.box_loss = loss;
  scale_anchors(parts.rpn.anchors, options.anchor_scale / kRpnScale);
  parts.rpn.batch_size_per_image = options.sampled_anchors;
  parts.rpn.training.after_nms = parts.rpn.evaluation.after_nms = options.proposals;
  parts.rpn.nms_thresh = options.proposal_nms_thresh;
  parts.rpn.score_thresh = options.proposal_score_thresh;
  parts.roi.batch_size_per_image = options.sampled_regions;
  parts.roi.box_head.hidden = options.hidden;
  take_convention(parts, options.convention);
}

std::unique_ptr<core::Head> built(const DetectorParts& parts, const DetectorBuild& build) {
  return std::make_unique<DetectorHead>(parts, build.stages.stride, build.scope);
}

DetectorParts parts_for(DetectorType type, const DetectorHeadOptions& options, const DetectorBuild& build) {
  return detector_parts(type, build.stages, options.num_classes, build.backbone);
}

}  // namespace

DetectorParts detector_parts(DetectorType type, const BackboneStages& of_backbone, int64_t num_classes,
                             const std::string& backbone) {
  BackboneStages stages = of_backbone;
  DetectorParts out;
  out.type = type;
  out.simple_pyramid = stages.widths.size() == 1 && stages.stride == SimplePyramid::kStride;
  if (out.simple_pyramid) stages.stride = SimplePyramid::kStride / 4;
  base::require(out.simple_pyramid || stages.widths.size() == kStages,
                "detector: expected a backbone of {} stages, or of one with patches of {}, found {} with patches of {} "
                "in backbone.type = \"{}\"",
                kStages, SimplePyramid::kStride, stages.widths.size(), stages.stride, backbone);
  base::require(num_classes >= 1, "detector: expected at least one class, found {}", num_classes);
  if (type == DetectorType::retinanet) {
    set_retinanet(out, stages, num_classes);
  } else {
    set_two_stages(out, stages, num_classes, type == DetectorType::mask_rcnn);
  }
  return out;
}

std::unique_ptr<core::Head> make_detector(const RetinaNetHeadOptions& options, const DetectorBuild& build) {
  DetectorParts parts = parts_for(DetectorType::retinanet, options, build);
  take_common(parts, options);
  scale_anchors(parts.retinanet.anchors, options.anchor_scale / kRetinaNetScale);
  parts.retinanet.num_convs = options.num_convs;
  parts.retinanet.box_loss = options.box_loss;
  parts.retinanet.alpha = options.alpha;
  parts.retinanet.gamma = options.gamma;
  take_convention(parts, options.convention);
  return built(parts, build);
}

std::unique_ptr<core::Head> make_detector(const FasterRcnnOptions& options, const DetectorBuild& build) {
  DetectorParts parts = parts_for(DetectorType::faster_rcnn, options, build);
  take_two_stages(parts, options);
  return built(parts, build);
}

std::unique_ptr<core::Head> make_detector(const MaskRcnnOptions& options, const DetectorBuild& build) {
  DetectorParts parts = parts_for(DetectorType::mask_rcnn, options, build);
  take_two_stages(parts, options);
  parts.roi.mask_head->layers.assign(static_cast<size_t>(options.mask_convs), options.channels);
  parts.roi.mask_head->hidden = options.channels;
  return built(parts, build);
}

}  // namespace mnemo::heads
