#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "base/error.h"
#include "heads/detection/simple_pyramid.h"
#include "models/detection.h"
#include "models/presets.h"

namespace mnemo::models {
namespace {

constexpr size_t kStages = 4;
constexpr int64_t kExtraMaps = 2;

/// Widths of the stages of a backbone, and the stride of the first.
struct Stages {
  std::vector<int64_t> widths;
  int64_t stride = 4;
};

Stages stages_of(const backbones::VisionOptions& vision) {
  return std::visit(
      [](const auto& options) {
        Stages out;
        if constexpr (requires { options.dims; }) {
          out.widths = options.dims;
        } else if constexpr (requires { options.dim_of(size_t{0}); }) {
          for (size_t s = 0; s < options.depths.size(); ++s) out.widths.push_back(options.dim_of(s));
        } else {
          out.widths = {options.dim};
        }
        if constexpr (requires { options.patch_size; }) out.stride = options.patch_size;
        return out;
      },
      vision);
}

/// Anchors of maps whose strides double, of sizes that are multiples of the stride.
heads::AnchorOptions anchors(int64_t stride, size_t levels, const std::vector<double>& multiples) {
  heads::AnchorOptions out;
  out.round = false;
  for (size_t l = 0; l < levels; ++l, stride *= 2) {
    ops::AnchorLevel level{{}, {0.5, 1.0, 2.0}};
    for (const double multiple : multiples) level.sizes.push_back(multiple * static_cast<double>(stride));
    out.levels.push_back(std::move(level));
    out.strides.emplace_back(stride, stride);
  }
  return out;
}

void set_retinanet(DetectorOptions& out, const Stages& stages, int64_t num_classes) {
  out.first_stage = 1;
  if (out.simple_pyramid) {
    out.fpn.in_channels = stages.widths;
    out.fpn.extra = heads::FpnOptions::Extra::p6p7_from_p;
  } else {
    out.fpn.in_channels = {stages.widths.begin() + 1, stages.widths.end()};
    out.fpn.extra = heads::FpnOptions::Extra::p6p7_from_c;
  }
  out.retinanet.num_classes = num_classes;
  out.retinanet.anchors = anchors(stages.stride * 2, kStages - 1 + kExtraMaps,
                                  {4.0, 4 * std::cbrt(2.0), 4 * std::cbrt(4.0)});
}

void set_two_stages(DetectorOptions& out, const Stages& stages, int64_t num_classes, bool masks) {
  out.fpn.in_channels = stages.widths;
  out.fpn.extra = heads::FpnOptions::Extra::pool;
  out.rpn.anchors = anchors(stages.stride, kStages + 1, {8.0});
  out.rpn.box_loss = out.roi.box_head.box_loss = heads::BoxLoss::l1;
  for (size_t s = 0; s < kStages; ++s) out.roi.levels.scales.push_back(1.0 / static_cast<double>(stages.stride << s));
  out.roi.box_pool = {7, 7, 0, true};
  out.roi.mask_pool = {14, 14, 0, true};
  out.roi.box_head.num_classes = num_classes + 1;
  if (masks) out.roi.mask_head = heads::MaskHeadOptions{.num_classes = num_classes + 1};
}

}  // namespace

DetectorOptions detector_options(DetectorType type, const ModelOptions& model, int64_t num_classes) {
  DetectorOptions out;
  out.type = type;
  out.model = model;
  base::require(model.backbone.input() == core::InputKind::images,
                "detector: expected an image backbone, found backbone.type = \"{}\"", model.backbone.type);
  Stages stages = stages_of(model.backbone.vision());
  out.simple_pyramid = stages.widths.size() == 1 && stages.stride == heads::SimplePyramid::kStride;
  if (out.simple_pyramid) stages.stride = heads::SimplePyramid::kStride / 4;
  base::require(out.simple_pyramid || stages.widths.size() == kStages,
                "detector: expected a backbone of {} stages, or of one with patches of {}, found {} with patches of {} "
                "in backbone.type = \"{}\"",
                kStages, heads::SimplePyramid::kStride, stages.widths.size(), stages.stride, model.backbone.type);
  base::require(num_classes >= 1, "detector: expected at least one class, found {}", num_classes);
  if (type == DetectorType::retinanet) {
    set_retinanet(out, stages, num_classes);
  } else {
    set_two_stages(out, stages, num_classes, type == DetectorType::mask_rcnn);
  }
  return out;
}

const std::vector<DetectorPreset>& detector_presets() {
  using enum DetectorType;
  // mmdetection's: statistics of the pretraining, and neither stem nor first stage trained
  constexpr const char* kNorms = "backbone.batch_norms = \"running\"\nbackbone.frozen_stages = 1\n";
  static const std::vector<DetectorPreset> presets = {// Wang et al. 2021, tables 4 and 5
                                                      {"retinanet_pvt_tiny", retinanet, "pvt_tiny", 23.0},
                                                      {"retinanet_pvt_small", retinanet, "pvt_small", 34.2},
                                                      {"retinanet_pvt_medium", retinanet, "pvt_medium", 53.9},
                                                      {"mask_rcnn_pvt_tiny", mask_rcnn, "pvt_tiny", 32.9},
                                                      {"mask_rcnn_pvt_small", mask_rcnn, "pvt_small", 44.1},
                                                      {"mask_rcnn_pvt_medium", mask_rcnn, "pvt_medium", 63.9},
                                                      // Wang et al. 2022, table 3; Liu et al. 2021
                                                      {"retinanet_pvt_v2_b2", retinanet, "pvt_v2_b2", 35.1},
                                                      {"mask_rcnn_pvt_v2_b2", mask_rcnn, "pvt_v2_b2", 45.0},
                                                      {"mask_rcnn_swin_tiny", mask_rcnn, "swin_tiny", 47.8},
                                                      // as the PVT paper's tables have them
                                                      {"retinanet_resnet18", retinanet, "resnet18", 21.3, kNorms},
                                                      {"retinanet_resnet50", retinanet, "resnet50", 37.7, kNorms},
                                                      {"retinanet_resnet101", retinanet, "resnet101", 56.7, kNorms},
                                                      {"mask_rcnn_resnet18", mask_rcnn, "resnet18", 31.2, kNorms},
                                                      {"mask_rcnn_resnet50", mask_rcnn, "resnet50", 44.2, kNorms},
                                                      {"mask_rcnn_resnet101", mask_rcnn, "resnet101", 63.2, kNorms}};
  return presets;
}

DetectorOptions detector_preset(const std::string& name) {
  const auto& presets = detector_presets();
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const auto& one) { return one.name == name; });
  base::require(found != presets.end(), "detector: no preset {}", base::in_quotes(name));
  constexpr int64_t kCocoClasses = 80;
  base::Node model = base::parse_toml(found->keys, found->name);
  model.set("preset", found->backbone);
  return detector_options(found->type, read_model_options(model), kCocoClasses);
}

}  // namespace mnemo::models
