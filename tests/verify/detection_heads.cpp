#include <torch/types.h>

#include "base/error.h"
#include "heads/detection/fpn.h"
#include "heads/detection/retinanet.h"
#include "heads/detection/roi_heads.h"
#include "heads/detection/rpn.h"
#include "ops/detection/mask_paste.h"
#include "tests/verify/detection.h"

namespace mnemo::verify {
namespace {

using heads::ObjectTargets;
using heads::PixelSize;

constexpr double kPasteThreshold = 0.5;

std::vector<int64_t> integers_of(const base::Node& list) {
  std::vector<int64_t> out;
  for (const base::Node& item : list.items()) out.push_back(item.as_int());
  return out;
}

heads::BoxLoss box_loss_of(const base::Node& config) {
  const std::string& name = config.at("box_loss").as_string();
  base::require(name == "l1" || name == "smooth_l1" || name == "giou",
                "{}: box_loss: expected l1, smooth_l1 or giou, found {}", config.where(), base::in_quotes(name));
  return name == "l1" ? heads::BoxLoss::l1 : name == "giou" ? heads::BoxLoss::giou : heads::BoxLoss::smooth_l1;
}

heads::AnchorOptions anchor_options(const base::Node& config) {
  heads::AnchorOptions out;
  const base::Node &sizes = config.at("sizes"), &ratios = config.at("ratios"), &strides = config.at("strides");
  base::require(sizes.size() == ratios.size(), "{}: expected sizes and ratios of as many levels", config.where());
  for (size_t l = 0; l < sizes.size(); ++l)
    out.levels.push_back({numbers_of(sizes.items()[l]), numbers_of(ratios.items()[l])});
  for (size_t l = 0; !strides.is_string() && l < strides.size(); ++l)
    out.strides.push_back(pair_of(strides.items()[l]));
  out.round = config.at("round").as_bool();
  return out;
}

heads::RpnOptions rpn_options(const base::Node& config) {
  heads::RpnOptions out;
  if (const base::Node* convs = config.find("num_convs")) out.num_convs = convs->as_int();
  out.anchors = anchor_options(config.at("anchors"));
  out.fg_iou = config.at("fg_iou").as_double();
  out.bg_iou = config.at("bg_iou").as_double();
  out.batch_size_per_image = config.at("batch_size_per_image").as_int();
  out.positive_fraction = config.at("positive_fraction").as_double();
  out.training = out.evaluation = {config.at("pre_nms_top_n").as_int(), config.at("post_nms_top_n").as_int()};
  out.nms_thresh = config.at("nms_thresh").as_double();
  out.score_thresh = config.at("score_thresh").as_double();
  out.min_size = config.at("min_size").as_double();
  out.box_loss = box_loss_of(config);
  out.beta = config.at("beta").as_double();
  return out;
}

std::vector<PixelSize> image_sizes(const DetectionStep& step) {
  const at::Tensor sizes = step.input("image_sizes");
  std::vector<PixelSize> out;
  for (int64_t b = 0; b < sizes.size(0); ++b)
    out.emplace_back(sizes[b][0].item<int64_t>(), sizes[b][1].item<int64_t>());
  return out;
}

std::vector<ObjectTargets> targets(const DetectionStep& step, bool masks) {
  std::vector<ObjectTargets> out;
  for (size_t b = 0; step.has(fmt::format("target.{}.boxes", b)); ++b) {
    out.push_back({step.input(fmt::format("target.{}.boxes", b)), step.input(fmt::format("target.{}.labels", b)), {}});
    if (masks) out.back().masks = step.input(fmt::format("target.{}.masks", b));
  }
  return out;
}

/// The file's permutations, `prefix` "", "rpn." or "roi.".
heads::DrawOrder orders(const DetectionStep& step, const std::string& prefix) {
  return [&step, prefix](int64_t image, bool positive, int64_t count) {
    const at::Tensor order = step.input(fmt::format("{}perm_{}.{}", prefix, positive ? "positive" : "negative", image));
    base::require(order.size(0) == count, "{}: expected a permutation of {} samples of image {}, found {}",
                  step.file().path(), count, image, order.size(0));
    return order;
  };
}

void put_detections(const std::vector<heads::Detections>& found, const std::vector<PixelSize>& sizes,
                    DetectionStep& step) {
  for (size_t b = 0; b < found.size(); ++b) {
    const auto put = [&](const char* part, const at::Tensor& value) {
      step.output(fmt::format("detection.{}.{}", b, part), value);
    };
    put("boxes", found[b].boxes);
    put("scores", found[b].scores);
    put("labels", found[b].labels);
    if (!found[b].masks.defined()) continue;
    put("masks", found[b].masks);
    put("pasted", ops::paste_masks(found[b].masks, found[b].boxes, sizes[b].first, sizes[b].second,
                                   ops::MaskPaste::integer) > kPasteThreshold);
  }
}

void put_proposals(const std::vector<heads::Proposals>& proposals, bool scores, DetectionStep& step) {
  for (size_t b = 0; b < proposals.size(); ++b) {
    step.output(fmt::format("proposals.{}", b), proposals[b].boxes);
    if (scores) step.output(fmt::format("scores.{}", b), proposals[b].scores);
  }
}

GoldenReport run_neck(const GoldenFile& file) {
  const base::Node& config = file.config().at("neck");
  const std::string& extra = config.at("extra").as_string();
  using Extra = heads::FpnOptions::Extra;
  const std::map<std::string, Extra> extras = {{"none", Extra::none},
                                               {"pool", Extra::pool},
                                               {"p6p7_from_c", Extra::p6p7_from_c},
                                               {"p6p7_from_p", Extra::p6p7_from_p}};
  base::require(extras.contains(extra), "{}: neck.extra: unknown: {}", file.path(), base::in_quotes(extra));
  layers::ParameterSet set(0, at::kDouble, file.budget());
  const heads::Fpn fpn({integers_of(config.at("in_channels")), config.at("out_channels").as_int(), extras.at(extra)},
                       set.root() / "neck");
  file.load_parameters(set);
  DetectionStep step(file);
  step.outputs("feature", fpn(step.inputs("feature")));
  return step.take(set.named());
}

GoldenReport run_rpn(const GoldenFile& file, const base::Node& config) {
  const heads::RpnOptions options = rpn_options(config);
  DetectionStep step(file);
  heads::Rpn::Output output{step.inputs("objectness"), step.inputs("deltas"), {}};
  output.anchors = heads::make_anchors(options.anchors, pair_of(config.at("image_size")), output.objectness);
  put_proposals(heads::rpn_proposals(options, output, image_sizes(step), options.training), true, step);
  const heads::Rpn::Losses losses = heads::rpn_losses(options, output, targets(step, false), orders(step, ""));
  step.output("loss_objectness", losses.objectness);
  step.output("loss_rpn_box", losses.box);
  return step.take();
}

GoldenReport run_retinanet(const GoldenFile& file, const base::Node& config) {
  heads::RetinaNetOptions options;
  options.in_channels = config.at("in_channels").as_int();
  options.num_classes = config.at("num_classes").as_int();
  options.num_convs = config.at("num_convs").as_int();
  options.anchors = anchor_options(config.at("anchors"));
  options.box_loss = box_loss_of(config);
  options.beta = config.at("beta").as_double();
  options.fg_iou = config.at("fg_iou").as_double();
  options.bg_iou = config.at("bg_iou").as_double();
  options.alpha = config.at("alpha").as_double();
  options.gamma = config.at("gamma").as_double();
  options.score_thresh = config.at("score_thresh").as_double();
  options.nms_thresh = config.at("nms_thresh").as_double();
  options.topk_candidates = config.at("topk_candidates").as_int();
  options.detections_per_img = config.at("detections_per_img").as_int();
  layers::ParameterSet set(0, at::kDouble, file.budget());
  const heads::RetinaNetHead head(options, set.root() / "head");
  file.load_parameters(set);
  DetectionStep step(file);
  const auto output = head(step.inputs("feature"), pair_of(config.at("image_size")));
  step.output("cls_logits", output.cls_logits);
  step.output("box_reg", output.box_reg);
  if (file.training()) {
    image_sizes(step);  // which losses do not need
    const auto losses = head.losses(output, targets(step, false));
    step.output("loss_cls", losses.cls);
    step.output("loss_box", losses.box);
  } else {
    put_detections(head.detect(output, image_sizes(step)), {}, step);
  }
  return step.take(set.named());
}

heads::BoxHeadOptions box_head_options(const base::Node& config, int64_t channels, int64_t classes,
                                       const base::Node& weights) {
  heads::BoxHeadOptions out;
  out.in_channels = channels;
  out.num_classes = classes;
  out.hidden = config.at("hidden").as_int();
  out.weights = weights_of(weights);
  out.box_loss = box_loss_of(config);
  out.beta = config.at("beta").as_double();
  return out;
}

GoldenReport run_box_head(const GoldenFile& file, const base::Node& config) {
  heads::BoxHeadOptions options = box_head_options(config, config.at("in_channels").as_int(),
                                                   config.at("num_classes").as_int(), config.at("weights"));
  options.pool = config.at("pool").as_int();
  layers::ParameterSet set(0, at::kDouble, file.budget());
  const heads::BoxHead head(options, set.root() / "box_head");
  file.load_parameters(set);
  DetectionStep step(file);
  const auto output = head(step.input("pooled"));
  const auto losses = head.losses(output, step.input("labels"), step.input("box_targets"));
  step.output("cls_logits", output.cls_logits);
  step.output("box_reg", output.box_reg);
  step.output("loss_cls", losses.cls);
  step.output("loss_box", losses.box);
  return step.take(set.named());
}

heads::MaskHeadOptions mask_head_options(const base::Node& config, int64_t channels, int64_t classes) {
  return {channels, integers_of(config.at("layers")), config.at("hidden").as_int(), classes};
}

GoldenReport run_mask_head(const GoldenFile& file, const base::Node& config) {
  layers::ParameterSet set(0, at::kDouble, file.budget());
  const heads::MaskHead head(
      mask_head_options(config, config.at("in_channels").as_int(), config.at("num_classes").as_int()),
      set.root() / "mask_head");
  file.load_parameters(set);
  DetectionStep step(file);
  const std::vector<at::Tensor> proposals = step.inputs("proposals"), matched = step.inputs("matched");
  const std::vector<ObjectTargets> objects = targets(step, true);
  std::vector<at::Tensor> labels, wanted;
  for (size_t b = 0; b < objects.size(); ++b) {
    labels.push_back(objects[b].labels.index_select(0, matched[b]));
    wanted.push_back(
        heads::mask_targets(objects[b].masks, proposals[b], matched[b], 2 * config.at("pool").as_int(), false));
    step.input(fmt::format("target.{}.boxes", b));
  }
  const at::Tensor logits = head(step.input("pooled")), label = at::cat(labels, 0), targets_of = at::cat(wanted, 0);
  step.output("mask_logits", logits);
  step.output("mask_probability", at::sigmoid(heads::mask_of_label(logits, label)));
  step.output("mask_targets", targets_of);
  step.output("loss_mask", heads::mask_loss(logits, label, targets_of));
  return step.take(set.named());
}

heads::RoiHeadsOptions roi_heads_options(const base::Node& config) {
  const int64_t channels = config.at("in_channels").as_int(), classes = config.at("num_classes").as_int();
  heads::RoiHeadsOptions out;
  out.roi_levels = integers_of(config.at("roi_levels"));
  out.levels = roi_levels_of(config.at("box_pool"));
  out.box_pool = roi_options_of(config.at("box_pool"));
  out.box_head = box_head_options(config.at("box_head"), channels, classes, config.at("weights"));
  out.box_head.pool = out.box_pool.height;
  if (const base::Node* mask = config.find("mask_head")) {
    out.mask_pool = roi_options_of(config.at("mask_pool"));
    out.mask_head = mask_head_options(*mask, channels, classes);
  }
  out.fg_iou = config.at("fg_iou").as_double();
  out.bg_iou = config.at("bg_iou").as_double();
  out.batch_size_per_image = config.at("batch_size_per_image").as_int();
  out.positive_fraction = config.at("positive_fraction").as_double();
  out.score_thresh = config.at("score_thresh").as_double();
  out.nms_thresh = config.at("nms_thresh").as_double();
  out.detections_per_img = config.at("detections_per_img").as_int();
  out.min_size = config.at("min_size").as_double();
  return out;
}

void train_two_stages(const heads::RpnOptions& rpn_options, const heads::Rpn::Output& output,
                      const std::vector<heads::Proposals>& proposals, const heads::RoiHeads& roi, bool masks,
                      const std::vector<at::Tensor>& maps, DetectionStep& step) {
  const std::vector<ObjectTargets> objects = targets(step, masks);
  const auto first = heads::rpn_losses(rpn_options, output, objects, orders(step, "rpn."));
  step.output("loss_objectness", first.objectness);
  step.output("loss_rpn_box", first.box);
  std::vector<heads::SampledRegions> regions;
  for (size_t b = 0; b < objects.size(); ++b) {
    regions.push_back(roi.sample(proposals[b].boxes, objects[b], static_cast<int64_t>(b), orders(step, "roi.")));
    step.output(fmt::format("sampled.{}.boxes", b), regions.back().boxes);
    step.output(fmt::format("sampled.{}.labels", b), regions.back().labels);
  }
  const auto second = roi.losses(maps, regions, objects);
  step.output("loss_cls", second.cls);
  step.output("loss_box", second.box);
  if (masks) step.output("loss_mask", second.mask);
}

GoldenReport run_two_stages(const GoldenFile& file, const base::Node& config) {
  heads::RpnOptions first = rpn_options(config.at("rpn"));
  first.in_channels = config.at("in_channels").as_int();
  const heads::RoiHeadsOptions second = roi_heads_options(config);
  layers::ParameterSet set(0, at::kDouble, file.budget());
  const heads::Rpn rpn(first, set.root() / "rpn");
  const heads::RoiHeads roi(second, set.root());
  file.load_parameters(set);
  DetectionStep step(file);
  const std::vector<at::Tensor> maps = step.inputs("feature");
  const heads::Rpn::Output output = rpn(maps, pair_of(config.at("image_size")));
  const std::vector<PixelSize> sizes = image_sizes(step);
  const std::vector<heads::Proposals> proposals = heads::rpn_proposals(first, output, sizes, first.training);
  put_proposals(proposals, false, step);
  if (file.training()) {
    train_two_stages(first, output, proposals, roi, second.mask_head.has_value(), maps, step);
    return step.take(set.named());
  }
  std::vector<at::Tensor> boxes;
  for (const heads::Proposals& each : proposals) boxes.push_back(each.boxes);
  const heads::BoxHead::Output found = roi.boxes(maps, boxes);
  step.output("cls_logits", found.cls_logits);
  step.output("box_reg", found.box_reg);
  put_detections(roi.detect(maps, boxes, found, sizes), sizes, step);
  return step.take(set.named());
}

}  // namespace

GoldenReport verify_detection_head(const GoldenFile& file) {
  if (file.config().contains("neck")) return run_neck(file);
  const base::Node& config = file.config().at("head");
  const std::string& type = config.at("type").as_string();
  if (type == "rpn") return run_rpn(file, config);
  if (type == "retinanet") return run_retinanet(file, config);
  if (type == "box") return run_box_head(file, config);
  if (type == "mask") return run_mask_head(file, config);
  if (type == "mask_rcnn" || type == "faster_rcnn") return run_two_stages(file, config);
  base::input_error("{}: head.type: expected rpn, retinanet, box, mask, mask_rcnn or faster_rcnn, found {}",
                    file.path(), base::in_quotes(type));
}

}  // namespace mnemo::verify
