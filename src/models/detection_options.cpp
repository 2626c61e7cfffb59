#include <algorithm>
#include <variant>

#include "base/error.h"
#include "base/node_merge.h"
#include "models/detection_options.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

constexpr int64_t kCocoClasses = 80;

const heads::Entry& head_entry(const ModelOptions& model) { return Mechanisms::all().heads.find(model.head.type()); }

}  // namespace

heads::BackboneStages stages_of(const backbones::VisionOptions& vision) {
  return std::visit(
      [](const auto& options) {
        heads::BackboneStages out;
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

bool is_detector(const ModelOptions& model) { return head_entry(model).detects; }
bool gives_masks(const ModelOptions& model) { return head_entry(model).gives_masks; }

const std::vector<DetectorPreset>& detector_presets() {
  // mmdetection's: statistics of the pretraining, and neither stem nor first stage trained
  constexpr const char* kNorms = "backbone.batch_norms = \"running\"\nbackbone.frozen_stages = 1\n";
  static const std::vector<DetectorPreset> presets = {// Wang et al. 2021, tables 4 and 5
                                                      {"retinanet_pvt_tiny", "pvt_tiny", 23.0},
                                                      {"retinanet_pvt_small", "pvt_small", 34.2},
                                                      {"retinanet_pvt_medium", "pvt_medium", 53.9},
                                                      {"mask_rcnn_pvt_tiny", "pvt_tiny", 32.9},
                                                      {"mask_rcnn_pvt_small", "pvt_small", 44.1},
                                                      {"mask_rcnn_pvt_medium", "pvt_medium", 63.9},
                                                      // Wang et al. 2022, table 3; Liu et al. 2021
                                                      {"retinanet_pvt_v2_b2", "pvt_v2_b2", 35.1},
                                                      {"mask_rcnn_pvt_v2_b2", "pvt_v2_b2", 45.0},
                                                      {"mask_rcnn_swin_tiny", "swin_tiny", 47.8},
                                                      // as the PVT paper's tables have them
                                                      {"retinanet_resnet18", "resnet18", 21.3, kNorms},
                                                      {"retinanet_resnet50", "resnet50", 37.7, kNorms},
                                                      {"retinanet_resnet101", "resnet101", 56.7, kNorms},
                                                      {"mask_rcnn_resnet18", "resnet18", 31.2, kNorms},
                                                      {"mask_rcnn_resnet50", "resnet50", 44.2, kNorms},
                                                      {"mask_rcnn_resnet101", "resnet101", 63.2, kNorms}};
  return presets;
}

void add_detector_presets(std::vector<Preset>& presets) {
  // Preset has views, so the texts stay here.
  static const std::vector<std::pair<std::string, std::string>> texts = [&] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const DetectorPreset& one : detector_presets()) {
      const auto backbone = std::find_if(presets.begin(), presets.end(),
                                         [&](const Preset& preset) { return preset.name == one.backbone; });
      base::Node model = base::merge(base::parse_toml(backbone->toml, std::string(backbone->name)),
                                     base::parse_toml(one.keys, one.name));
      const std::string head = one.name.substr(0, one.name.find("_" + one.backbone));
      model.set("head", base::Node::table({{"type", head}, {"num_classes", kCocoClasses}}));
      all.emplace_back(base::to_toml(model), fmt::format("{} for COCO on {}", head, one.backbone));
    }
    return all;
  }();
  for (size_t i = 0; i < texts.size(); ++i) {
    const DetectorPreset& one = detector_presets()[i];
    presets.push_back({one.name, texts[i].second, texts[i].first, 0, one.published_millions, "its paper"});
  }
}

}  // namespace mnemo::models
