#include <torch/types.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "ops/detection/detection_losses.h"
#include "ops/detection/mask_paste.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"
#include "tests/verify/detection.h"

namespace mnemo::verify {
namespace {

void run_iou(const base::Node& /*op*/, DetectionStep& step) {
  step.output("iou", ops::box_iou(step.input("a"), step.input("b")));
  step.output("giou", ops::box_giou(step.input("a"), step.input("b")));
}

void run_giou_loss(const base::Node& op, DetectionStep& step) {
  step.output("loss", ops::giou_loss(step.input("a"), step.input("b"), op.at("eps").as_double()));
}

void run_encode(const base::Node& op, DetectionStep& step) {
  step.output("deltas", ops::box_encode(step.input("anchors"), step.input("boxes"), weights_of(op.at("weights"))));
}

void run_decode(const base::Node& op, DetectionStep& step) {
  at::Tensor boxes = ops::box_decode(step.input("anchors"), step.input("deltas"), weights_of(op.at("weights")),
                                     op.at("clip").as_double());
  if (const base::Node* image = op.find("clip_image")) {
    const auto [height, width] = pair_of(*image);
    boxes = ops::clip_boxes(boxes, static_cast<double>(height), static_cast<double>(width));
  }
  step.output("boxes", boxes);
}

void run_anchors(const base::Node& op, DetectionStep& step) {
  std::vector<std::pair<int64_t, int64_t>> grids;
  for (const base::Node& grid : op.at("grids").items()) grids.push_back(pair_of(grid));
  step.outputs("anchors", anchors_of(op, pair_of(op.at("image_size")), grids));
}

void run_nms(const base::Node& op, DetectionStep& step) {
  const at::Tensor labels = step.has("labels") ? step.input("labels") : at::Tensor();
  step.output("keep", ops::nms(step.input("boxes"), step.input("scores"), labels, op.at("iou_threshold").as_double()));
}

void run_matcher(const base::Node& op, DetectionStep& step) {
  step.output("matches", ops::match_table(step.input("iou"), {op.at("high").as_double(), op.at("low").as_double(),
                                                              op.at("allow_low_quality").as_bool()}));
}

void run_sampler(const base::Node& op, DetectionStep& step) {
  const ops::BalancedSample sample = ops::sample_balanced(step.input("labels"), op.at("batch_size_per_image").as_int(),
                                                          op.at("positive_fraction").as_double(),
                                                          step.input("perm_positive"), step.input("perm_negative"));
  step.output("positive", sample.positive);
  step.output("negative", sample.negative);
}

void run_roi_align(const base::Node& op, DetectionStep& step) {
  step.output("pooled", ops::roi_align(step.input("features"), step.input("rois"), op.at("spatial_scale").as_double(),
                                       roi_options_of(op)));
}

void run_roi_levels(const base::Node& op, DetectionStep& step) {
  const std::vector<at::Tensor> maps = step.inputs("feature"), boxes = step.inputs("boxes");
  const ops::RoiLevels levels = roi_levels_of(op);
  base::require(levels.scales.size() == maps.size(), "{}: expected a scale for each of {} maps", op.where(),
                maps.size());
  step.output("pooled", ops::roi_align_levels(maps, boxes, levels, roi_options_of(op)));
  step.output("level", ops::roi_levels(at::cat(boxes, 0), levels));
}

void run_focal(const base::Node& op, DetectionStep& step) {
  step.output("loss", ops::focal_loss(step.input("logits"), step.input("targets"), op.at("alpha").as_double(),
                                      op.at("gamma").as_double()));
}

void run_smooth_l1(const base::Node& op, DetectionStep& step) {
  step.output("loss", ops::smooth_l1(step.input("a"), step.input("b"), op.at("beta").as_double()));
}

void run_paste(const base::Node& op, DetectionStep& step) {
  const auto [height, width] = pair_of(op.at("image_size"));
  const std::string& method = op.at("method").as_string();
  base::require(method == "integer" || method == "continuous", "{}: method: expected integer or continuous, found {}",
                op.where(), base::in_quotes(method));
  base::require(op.at("padding").as_int() == 1, "{}: padding: expected 1", op.where());
  const at::Tensor found = ops::paste_masks(step.input("masks"), step.input("boxes"), height, width,
                                            method == "integer" ? ops::MaskPaste::integer : ops::MaskPaste::continuous);
  step.output("probability", found);
  step.output("mask", found > op.at("threshold").as_double());
}

}  // namespace

GoldenReport verify_detection_op(const GoldenFile& file) {
  using Run = std::function<void(const base::Node&, DetectionStep&)>;
  static const std::map<std::string, Run> runs = {
      {"box_iou", run_iou},         {"giou_loss", run_giou_loss},   {"box_encode", run_encode},
      {"box_decode", run_decode},   {"anchors", run_anchors},       {"nms", run_nms},
      {"batched_nms", run_nms},     {"matcher", run_matcher},       {"sampler", run_sampler},
      {"roi_align", run_roi_align}, {"roi_levels", run_roi_levels}, {"focal_loss", run_focal},
      {"smooth_l1", run_smooth_l1}, {"paste_masks", run_paste}};
  const base::Node& op = file.config().at("op");
  const auto run = runs.find(op.at("type").as_string());
  base::require(run != runs.end(), "{}: op.type: expected an operation of this build, found {}", file.path(),
                base::in_quotes(op.at("type").as_string()));
  DetectionStep step(file);
  run->second(op, step);
  return step.take();
}

}  // namespace mnemo::verify
