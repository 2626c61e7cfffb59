// Detectors of torchvision: a folder with the state_dict as model.safetensors and a config.json
//   {"architecture": "maskrcnn_resnet50_fpn", "model_args": {"num_classes": 91, "box_score_thresh": 0.05}}
// architecture: retinanet_resnet50_fpn, fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn. model_args, all optional:
// torchvision's arguments of sizes, thresholds and counts; "backbone_name": "resnet50"; "norm_eps": 1e-5, which is 0
// for the weights that torchvision publishes as COCO_V1. Class 0 of Faster and Mask R-CNN is the background, so their
// labels are one less here.
#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/options.h"
#include "models/options.h"
#include "weights/foreign.h"
#include "weights/foreign_config.h"
#include "weights/foreign_resnet.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

/// Its architectures, and our heads.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kArchitectures = {
    {{"retinanet_resnet50_fpn", "retinanet"},
     {"fasterrcnn_resnet50_fpn", "faster_rcnn"},
     {"maskrcnn_resnet50_fpn", "mask_rcnn"}}};

/// The type of our head; empty for another architecture.
std::string_view head_type(const base::Node& config) {
  for (const auto& [architecture, head] : kArchitectures) {
    if (timm_architecture(config) == architecture) return head;
  }
  return {};
}

/// The arguments that all have. Those of the head are listed with the names of our keys.
struct SharedArguments {
  std::string backbone_name = "resnet50";
  int64_t num_classes = 91;
  double norm_eps = 1e-5;
  int64_t min_size = 800, max_size = 1333;
  std::vector<double> image_mean = {0.485, 0.456, 0.406}, image_std = {0.229, 0.224, 0.225};
  template <class V>
  void visit_shared(V&& v) {
    v("backbone_name", backbone_name, "", base::one_of("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"));
    v("num_classes", num_classes, "", base::range(2, 1 << 16));
    v("norm_eps", norm_eps, "", base::range(0.0, 1.0));
    v("min_size", min_size, "", base::range(1, 1 << 14));
    v("max_size", max_size, "", base::range(1, 1 << 14));
    v("image_mean", image_mean, "");
    v("image_std", image_std, "", base::positive());
  }
};

using KeyNames = std::vector<std::pair<std::string_view, std::string_view>>;

struct RetinaNetArguments : SharedArguments {
  static constexpr int64_t kBackground = 0;
  static KeyNames head_keys() {
    return {{"score_thresh", "score_thresh"},
            {"nms_thresh", "nms_thresh"},
            {"detections_per_img", "detections"},
            {"topk_candidates", "candidates"}};
  }
  double score_thresh = 0.05, nms_thresh = 0.5;
  int64_t detections_per_img = 300, topk_candidates = 1000;
  template <class V>
  void visit(V&& v) {
    visit_shared(v);
    v("score_thresh", score_thresh, "", base::range(0.0, 1.0));
    v("nms_thresh", nms_thresh, "", base::range(0.0, 1.0));
    v("detections_per_img", detections_per_img, "", base::range(1, 1 << 14));
    v("topk_candidates", topk_candidates, "", base::range(1, 1 << 20));
  }
};

struct RcnnArguments : SharedArguments {
  static constexpr int64_t kBackground = 1;  ///< classes that are none
  static KeyNames head_keys() {
    return {{"rpn_pre_nms_top_n_test", "candidates"},  {"rpn_post_nms_top_n_test", "proposals"},
            {"rpn_nms_thresh", "proposal_nms_thresh"}, {"rpn_score_thresh", "proposal_score_thresh"},
            {"box_score_thresh", "score_thresh"},      {"box_nms_thresh", "nms_thresh"},
            {"box_detections_per_img", "detections"}};
  }
  int64_t rpn_pre_nms_top_n_test = 1000, rpn_post_nms_top_n_test = 1000, box_detections_per_img = 100;
  double rpn_nms_thresh = 0.7, rpn_score_thresh = 0.0, box_score_thresh = 0.05, box_nms_thresh = 0.5;
  template <class V>
  void visit(V&& v) {
    visit_shared(v);
    v("rpn_pre_nms_top_n_test", rpn_pre_nms_top_n_test, "", base::range(1, 1 << 20));
    v("rpn_post_nms_top_n_test", rpn_post_nms_top_n_test, "", base::range(1, 1 << 16));
    v("rpn_nms_thresh", rpn_nms_thresh, "", base::range(0.0, 1.0));
    v("rpn_score_thresh", rpn_score_thresh, "", base::range(0.0, 1.0));
    v("box_score_thresh", box_score_thresh, "", base::range(0.0, 1.0));
    v("box_nms_thresh", box_nms_thresh, "", base::range(0.0, 1.0));
    v("box_detections_per_img", box_detections_per_img, "", base::range(1, 1 << 14));
  }
};

/// Calls f with the arguments of that head's architecture.
template <class F>
auto with_arguments(std::string_view head, F&& f) {
  return head == "retinanet" ? f(RetinaNetArguments()) : f(RcnnArguments());
}

base::Node options_of_detector(const base::Node& config) {
  const std::string_view type = head_type(config);
  return with_arguments(type, [&]<class Arguments>(const Arguments& factory) {
    const Arguments arguments = timm_arguments(config, factory);
    base::Node backbone = resnet_backbone(arguments.backbone_name);
    backbone.set("batch_norms", "frozen");
    backbone.set("norm_eps", arguments.norm_eps);
    backbone.set("frozen_stages", 1);
    base::Node head = base::Node::table({{"type", type},
                                         {"num_classes", arguments.num_classes - Arguments::kBackground},
                                         {"convention", "torchvision"}});
    if (type != "retinanet") head.set("box_loss", "smooth_l1");
    const base::Node said = base::write_options(arguments);
    for (const auto& [theirs, ours] : Arguments::head_keys()) head.set(ours, said.at(theirs));
    return base::Node::table({{"backbone", std::move(backbone)}, {"head", std::move(head)}});
  });
}

base::Node config_of_detector(const models::ModelOptions& options) {
  const auto* resnet = std::get_if<backbones::ResnetOptions>(&options.backbone.vision());
  const auto* known = std::ranges::find(kArchitectures, std::string_view(options.head.type()),
                                        &std::pair<std::string_view, std::string_view>::second);
  base::require(resnet != nullptr && known != kArchitectures.end(),
                "torchvision_detector: expected a detector on backbone.type = \"resnet\", found head.type = \"{}\" on "
                "\"{}\"",
                options.head.type(), options.backbone.type);
  return with_arguments(known->second, [&]<class Arguments>(Arguments arguments) {
    const base::Node head = options.head.table();
    arguments.backbone_name = resnet_name(*resnet);
    arguments.num_classes = head.at("num_classes").as_int() + Arguments::kBackground;
    arguments.norm_eps = resnet->norm_eps;
    base::Node said = base::write_options(arguments);
    for (const auto& [theirs, ours] : Arguments::head_keys()) said.set(theirs, head.at(ours));
    return base::Node::table({{"architecture", known->first}, {"model_args", std::move(said)}});
  });
}

/// Their names of data::DetectionInput.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kInputNames = {
    {{"min_size", "shorter"}, {"max_size", "longest"}, {"image_mean", "mean"}, {"image_std", "std"}}};

base::Node detection_input(const base::Node& config) {
  const base::Node said = with_arguments(
      head_type(config), [&](const auto& factory) { return base::write_options(timm_arguments(config, factory)); });
  base::Node input = base::Node::table({{"resize", "torchvision"}});
  for (const auto& [theirs, ours] : kInputNames) input.set(ours, said.at(theirs));
  return input;
}

constexpr const char* kNames = "label_names";

void add_detection_input(base::Node& config, const base::Node& input) {
  base::Node arguments = config.at("model_args");
  for (const auto& [theirs, ours] : kInputNames) arguments.set(theirs, input.at(ours));
  config.set("model_args", std::move(arguments));
  const bool background = with_arguments(head_type(config), []<class A>(const A&) { return A::kBackground > 0; });
  if (!background || !config.contains(kNames)) return;
  base::Node names = base::Node::array({"__background__"});
  for (const base::Node& name : config.at(kNames).items()) names.push_back(name);
  config.set(kNames, std::move(names));
}

/// PREFIX NUMBER .REST -> (number, ".REST"); -1 for another name.
std::pair<int64_t, std::string_view> numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {-1, {}};
  name.remove_prefix(prefix.size());
  if (name.size() < 2 || name[0] < '0' || name[0] > '9' || name[1] != '.') return {-1, {}};
  return {name[0] - '0', name.substr(1)};
}

bool is_leaf(std::string_view rest) { return rest == ".weight" || rest == ".bias"; }

/// Today's name of a tensor of torchvision before 0.12.
std::string usual_name(std::string_view name) {
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

/// Their names of resnet_rules(). NameRule has views, so the texts stay here.
const std::vector<std::string>& body_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NameRule& rule : resnet_rules()) all.push_back(fmt::format("backbone.body.{}", rule.theirs));
    return all;
  }();
  return names;
}

TensorFile tidy_detector(const TensorFile& file, const std::string& where) {
  TensorFile tidy = without_batch_counts(file);
  std::set<std::string> names;
  for (auto& [name, tensor] : tidy.tensors) {
    std::string usual = usual_name(name);
    base::require(names.insert(usual).second, "{}: '{}': expected it under one name, found two", where, usual);
    name = std::move(usual);
  }
  return tidy;
}

}  // namespace

ForeignFormat torchvision_detector_format() {
  std::vector<NameRule> tensors = resnet_rules();
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].theirs = body_names()[i];
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
          .claims = [](const base::Node& config) { return !head_type(config).empty(); },
          .options = options_of_detector,
          .config = config_of_detector,
          .detector = ForeignDetector{detection_input, add_detection_input}};
}

}  // namespace mnemo::weights
