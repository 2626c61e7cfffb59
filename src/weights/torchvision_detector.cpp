#include "weights/torchvision_detector.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "base/options.h"
#include "models/options.h"
#include "weights/foreign_resnet.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

using models::DetectorType;

constexpr std::array<std::pair<std::string_view, DetectorType>, 3> kArchitectures = {
    {{"retinanet_resnet50_fpn", DetectorType::retinanet},
     {"fasterrcnn_resnet50_fpn", DetectorType::faster_rcnn},
     {"maskrcnn_resnet50_fpn", DetectorType::mask_rcnn}}};

const DetectorType* detector_type(const base::Node& config) {
  for (const auto& [name, type] : kArchitectures) {
    if (timm_architecture(config) == name) return &type;
  }
  return nullptr;
}

/// What both kinds of detectors have.
struct SharedArguments {
  std::string backbone_name = "resnet50";
  int64_t num_classes = 91;
  double norm_eps = 1e-5;
  template <class V>
  void visit_shared(V&& v) {
    v("backbone_name", backbone_name, "");
    v("num_classes", num_classes, "", base::range(2, 1 << 20));
    v("norm_eps", norm_eps, "", base::range(0.0, 1.0));
  }
};

struct RetinaNetArguments : SharedArguments {
  double score_thresh = 0.05, nms_thresh = 0.5;
  int64_t detections_per_img = 300, topk_candidates = 1000;
  template <class V>
  void visit(V&& v) {
    visit_shared(v);
    v("score_thresh", score_thresh, "", base::range(0.0, 1.0));
    v("nms_thresh", nms_thresh, "", base::range(0.0, 1.0));
    v("detections_per_img", detections_per_img, "", base::range(1, 1 << 20));
    v("topk_candidates", topk_candidates, "", base::range(1, 1 << 20));
  }
};

struct RcnnArguments : SharedArguments {
  int64_t rpn_pre_nms_top_n_test = 1000, rpn_post_nms_top_n_test = 1000, box_detections_per_img = 100;
  double rpn_nms_thresh = 0.7, rpn_score_thresh = 0.0, box_score_thresh = 0.05, box_nms_thresh = 0.5;
  template <class V>
  void visit(V&& v) {
    visit_shared(v);
    v("rpn_pre_nms_top_n_test", rpn_pre_nms_top_n_test, "", base::range(1, 1 << 20));
    v("rpn_post_nms_top_n_test", rpn_post_nms_top_n_test, "", base::range(1, 1 << 20));
    v("rpn_nms_thresh", rpn_nms_thresh, "", base::range(0.0, 1.0));
    v("rpn_score_thresh", rpn_score_thresh, "", base::range(0.0, 1.0));
    v("box_score_thresh", box_score_thresh, "", base::range(0.0, 1.0));
    v("box_nms_thresh", box_nms_thresh, "", base::range(0.0, 1.0));
    v("box_detections_per_img", box_detections_per_img, "", base::range(1, 1 << 20));
  }
};

models::ModelOptions model_of(const SharedArguments& arguments) {
  base::Node backbone = resnet_backbone(arguments.backbone_name);
  backbone.set("batch_norms", "frozen");
  backbone.set("norm_eps", arguments.norm_eps);
  backbone.set("frozen_stages", 1);
  models::ModelOptions model;  // its head is not built
  model.backbone = base::read_options<models::BackboneOptions>(backbone);
  return model;
}

/// Anchors of five maps, of sizes that are multiples of 32, 64, ... rounded down; strides as torchvision takes them.
heads::AnchorOptions anchors_of(const std::vector<double>& multiples) {
  heads::AnchorOptions anchors;
  for (double size = 32; size <= 512; size *= 2) {
    ops::AnchorLevel level{{}, {0.5, 1.0, 2.0}};
    for (const double multiple : multiples) level.sizes.push_back(std::floor(size * multiple));
    anchors.levels.push_back(std::move(level));
  }
  return anchors;
}

models::DetectorOptions retinanet_options(const RetinaNetArguments& arguments) {
  models::DetectorOptions out = models::detector_options(DetectorType::retinanet, model_of(arguments),
                                                         arguments.num_classes);
  out.fpn.extra = heads::FpnOptions::Extra::p6p7_from_p;
  out.retinanet.anchors = anchors_of({1.0, std::pow(2.0, 1.0 / 3), std::pow(2.0, 2.0 / 3)});
  out.retinanet.score_thresh = arguments.score_thresh;
  out.retinanet.nms_thresh = arguments.nms_thresh;
  out.retinanet.detections_per_img = arguments.detections_per_img;
  out.retinanet.topk_candidates = arguments.topk_candidates;
  return out;
}

models::DetectorOptions rcnn_options(DetectorType type, const RcnnArguments& arguments) {
  models::DetectorOptions out = models::detector_options(type, model_of(arguments), arguments.num_classes - 1);
  out.rpn.anchors = anchors_of({1.0});
  out.rpn.box_loss = out.roi.box_head.box_loss = heads::BoxLoss::smooth_l1;
  out.rpn.training = {2000, 2000};
  out.rpn.evaluation = {arguments.rpn_pre_nms_top_n_test, arguments.rpn_post_nms_top_n_test};
  out.rpn.nms_thresh = arguments.rpn_nms_thresh;
  out.rpn.score_thresh = arguments.rpn_score_thresh;
  out.roi.box_pool = {7, 7, 2, false};
  out.roi.mask_pool = {14, 14, 2, false};
  out.roi.score_thresh = arguments.box_score_thresh;
  out.roi.nms_thresh = arguments.box_nms_thresh;
  out.roi.detections_per_img = arguments.box_detections_per_img;
  return out;
}

template <class Arguments>
Arguments arguments_of(const base::Node& config) {
  Arguments arguments;
  base::read_options(timm_changes(config, base::write_options(arguments)), arguments);
  return arguments;
}

/// PREFIX NUMBER .REST -> (number, ".REST"); -1 for another name.
std::pair<int64_t, std::string_view> numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {-1, {}};
  name.remove_prefix(prefix.size());
  if (name.size() < 2 || name[0] < '0' || name[0] > '9' || name[1] != '.') return {-1, {}};
  return {name[0] - '0', name.substr(1)};
}

bool is_leaf(std::string_view rest) { return rest == ".weight" || rest == ".bias"; }

/// Today's name of a tensor of torchvision before 0.12, and names of the residual network without their prefix.
std::string usual_name(std::string_view name) {
  constexpr std::string_view kBody = "backbone.body.";
  if (name.starts_with(kBody)) return std::string(name.substr(kBody.size()));
  for (const std::string_view prefix : {"backbone.fpn.inner_blocks.", "backbone.fpn.layer_blocks."}) {
    if (const auto [number, rest] = numbered(name, prefix); number >= 0 && is_leaf(rest))
      return fmt::format("{}{}.0{}", prefix, number, rest);
  }
  for (const std::string_view prefix : {"head.classification_head.conv.", "head.regression_head.conv."}) {
    if (const auto [number, rest] = numbered(name, prefix); number >= 0 && is_leaf(rest))
      return fmt::format("{}{}.0{}", prefix, number / 2, rest);
  }
  constexpr std::string_view kMask = "roi_heads.mask_head.";
  if (const auto [number, rest] = numbered(name, "roi_heads.mask_head.mask_fcn"); number >= 1 && is_leaf(rest))
    return fmt::format("{}{}.0{}", kMask, number - 1, rest);
  if (name == "rpn.head.conv.weight" || name == "rpn.head.conv.bias")
    return fmt::format("rpn.head.conv.0.0{}", name.substr(std::string_view("rpn.head.conv").size()));
  return std::string(name);
}

TensorFile tidy_detector(const TensorFile& file, const std::string&) {
  TensorFile tidy = without_batch_counts(file);
  for (auto& [name, tensor] : tidy.tensors) name = usual_name(name);
  return tidy;
}

}  // namespace

bool is_torchvision_detector(const base::Node& config) { return detector_type(config) != nullptr; }

models::DetectorOptions torchvision_detector_options(const base::Node& config) {
  const DetectorType* type = detector_type(config);
  std::string known;
  for (const auto& [name, of] : kArchitectures) known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
  base::require(type != nullptr, "{}: 'architecture': expected one of {}, found {}", config.place().text(), known,
                base::in_quotes(timm_architecture(config)));
  models::DetectorOptions out = *type == DetectorType::retinanet
                                    ? retinanet_options(arguments_of<RetinaNetArguments>(config))
                                    : rcnn_options(*type, arguments_of<RcnnArguments>(config));
  out.padding = models::DetectorPadding::seen;
  return out;
}

ForeignFormat torchvision_detector_format() {
  std::vector<NameRule> tensors = resnet_rules();
  for (const NameRule& rule :
       std::initializer_list<NameRule>{{"neck.lateral.#.*", "backbone.fpn.inner_blocks.#.0.*"},
                                       {"neck.output.#.*", "backbone.fpn.layer_blocks.#.0.*"},
                                       {"neck.p6.*", "backbone.fpn.extra_blocks.p6.*"},
                                       {"neck.p7.*", "backbone.fpn.extra_blocks.p7.*"},
                                       {"head.cls_tower.#.*", "head.classification_head.conv.#.0.*"},
                                       {"head.cls_logits.*", "head.classification_head.cls_logits.*"},
                                       {"head.box_tower.#.*", "head.regression_head.conv.#.0.*"},
                                       {"head.box_reg.*", "head.regression_head.bbox_reg.*"},
                                       {"rpn.conv.#.*", "rpn.head.conv.#.0.*"},
                                       {"rpn.cls_logits.*", "rpn.head.cls_logits.*"},
                                       {"rpn.box_reg.*", "rpn.head.bbox_pred.*"},
                                       {"box_head.fc1.*", "roi_heads.box_head.fc6.*"},
                                       {"box_head.fc2.*", "roi_heads.box_head.fc7.*"},
                                       {"box_head.cls_score.*", "roi_heads.box_predictor.cls_score.*"},
                                       {"box_head.box_reg.*", "roi_heads.box_predictor.bbox_pred.*"},
                                       {"mask_head.conv.#.*", "roi_heads.mask_head.#.0.*"},
                                       {"mask_head.deconv.*", "roi_heads.mask_predictor.conv5_mask.*"},
                                       {"mask_head.mask_logits.*", "roi_heads.mask_predictor.mask_fcn_logits.*"}})
    tensors.push_back(rule);
  return {.name = "torchvision_detector",
          .about = "torchvision's RetinaNet, Faster R-CNN and Mask R-CNN on a ResNet with FPN",
          .backbone = backbones::ResnetOptions::kType,
          .tensors = std::move(tensors),
          .hidden = {},
          .tidy = tidy_detector,
          .claims = is_torchvision_detector,
          .options = {},
          .config = {}};
}

void load_torchvision_tensors(const TensorFile& file, models::Detector& detector, const std::string& where) {
  const ForeignFormat format = torchvision_detector_format();
  const NamedModel named = named_model(format, detector.parameters(), detector.initial_state(1));
  load_theirs(format, file, named.tensors, where);
  detector.commit(named.state);
}

models::Detector load_torchvision_detector(const std::string& folder, at::ScalarType dtype) {
  const std::string config_path = base::join_path(folder, "config.json"),
                    weights_path = base::join_path(folder, "model.safetensors");
  const models::DetectorOptions options = torchvision_detector_options(
      parse_model_config(base::read_file(config_path, size_t{1} << 20), config_path));
  const TensorFile file = read_safetensors(weights_path);
  const ForeignFormat format = torchvision_detector_format();
  const models::Detector shapes(options, 0, dtype, at::kMeta);
  require_theirs(format, file, named_model(format, shapes.parameters(), shapes.initial_state(1)).tensors, weights_path,
                 0, Unnamed::refuse);
  models::Detector detector(options, 0, dtype);
  load_torchvision_tensors(file, detector, weights_path);
  return detector;
}

}  // namespace mnemo::weights
