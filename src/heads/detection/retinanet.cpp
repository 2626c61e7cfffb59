#include "heads/detection/retinanet.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "ops/detection/detection_losses.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"

namespace mnemo::heads {
namespace {

constexpr double kStartStd = 0.01, kStartProbability = 0.01, kGiouEps = 1e-7;
constexpr ops::BoxWeights kPlainWeights = {1, 1, 1, 1};

/// The outputs of a tower at each level, with zeros in padding.
std::vector<at::Tensor> through(const std::vector<Convolution>& tower, std::span<const at::Tensor> maps,
                                RealLevels real) {
  std::vector<at::Tensor> out;
  for (size_t l = 0; l < maps.size(); ++l) out.push_back(keep_real(maps[l], real, l));
  for (const Convolution& layer : tower) {
    out = layer(out);
    for (size_t l = 0; l < maps.size(); ++l) out[l] = keep_real(at::relu(out[l]), real, l);
  }
  return out;
}

/// The least logit that may have a probability above `probability`: rounding leaves room for more.
double least_logit(double probability) { return std::log(probability / (1 - probability)) - 1e-3; }

}  // namespace

RetinaNetHead::RetinaNetHead(const RetinaNetOptions& options, const layers::Scope& scope) : options_(options) {
  base::require(!options.anchors.levels.empty(), "{}", "RetinaNet: expected anchors of at least one level");
  const int64_t anchors = anchors_of_cell();
  const auto start = layers::normal(kStartStd);
  const int64_t width = options.in_channels;
  for (int64_t k = 0; k < options.num_convs; ++k) {
    cls_tower_.emplace_back(scope / "cls_tower" / k, width, width, 3, 1, start);
    box_tower_.emplace_back(scope / "box_tower" / k, width, width, 3, 1, start);
  }
  cls_logits_ = Convolution(scope / "cls_logits", width, anchors * options.num_classes, 3, 1, start,
                            -std::log((1 - kStartProbability) / kStartProbability));
  box_reg_ = Convolution(scope / "box_reg", width, anchors * 4, 3, 1, start);
}

int64_t RetinaNetHead::anchors_of_cell() const {
  const ops::AnchorLevel& level = options_.anchors.levels[0];
  return static_cast<int64_t>(level.sizes.size() * level.ratios.size());
}

RetinaNetHead::Output RetinaNetHead::operator()(std::span<const at::Tensor> maps, PixelSize image,
                                                RealLevels real) const {
  return {flat_levels(cls_logits_(through(cls_tower_, maps, real)), options_.num_classes),
          flat_levels(box_reg_(through(box_tower_, maps, real)), 4),
          make_anchors(options_.anchors, image, maps),
          {real.begin(), real.end()}};
}

at::Tensor RetinaNetHead::box_loss(const at::Tensor& deltas, const at::Tensor& anchors, const at::Tensor& boxes) const {
  if (options_.box_loss != BoxLoss::giou)
    return box_loss_sum(options_.box_loss, deltas, ops::box_encode(anchors, boxes, kPlainWeights), options_.beta);
  return ops::giou_loss(ops::box_decode(anchors, deltas, kPlainWeights, kBoxClip).squeeze(1), boxes, kGiouEps).sum();
}

RetinaNetHead::Losses RetinaNetHead::losses(const Output& output, std::span<const ObjectTargets> targets) const {
  const at::Tensor all_anchors = at::cat(output.anchors, 0);
  const auto batch = static_cast<double>(targets.size());
  Losses sum;
  for (size_t b = 0; b < targets.size(); ++b) {
    const auto image = static_cast<int64_t>(b);
    const at::Tensor real = all_real_anchors(output.anchors, output.real, image, anchors_of_cell()),
                     anchors = rows_at(all_anchors, real);
    const at::Tensor matches = ops::match_boxes(targets[b].boxes, anchors, {options_.fg_iou, options_.bg_iou, true});
    const at::Tensor positive = at::nonzero(matches >= 0).squeeze(1), object = matches.index_select(0, positive);
    const at::Tensor logits = rows_at(output.cls_logits.select(0, image), real);
    at::Tensor classes = at::zeros(logits.sizes(), logits.options().requires_grad(false));
    classes.index_put_({positive, targets[b].labels.index_select(0, object)},
                       at::ones({}, logits.options().requires_grad(false)));
    const at::Tensor counts = (matches != ops::kBetweenThresholds).unsqueeze(1);
    const double share = 1.0 / (batch * static_cast<double>(std::max<int64_t>(1, positive.size(0))));
    const at::Tensor focal = ops::focal_loss(logits, classes, options_.alpha, options_.gamma);
    const at::Tensor cls = focal.masked_fill(counts.logical_not(), 0).sum() * share;
    const at::Tensor box = box_loss(rows_at(output.box_reg.select(0, image), real).index_select(0, positive),
                                    anchors.index_select(0, positive), targets[b].boxes.index_select(0, object)) *
                           share;
    sum.cls = b == 0 ? cls : sum.cls + cls;
    sum.box = b == 0 ? box : sum.box + box;
  }
  return sum;
}

std::vector<Detections> RetinaNetHead::detect(const Output& output, std::span<const PixelSize> image_sizes) const {
  const at::NoGradGuard no_grad;
  std::vector<Detections> all;
  for (size_t b = 0; b < image_sizes.size(); ++b) {
    const auto image = static_cast<int64_t>(b);
    std::vector<at::Tensor> boxes, scores, labels;
    int64_t first = 0;
    for (size_t l = 0; l < output.anchors.size(); ++l) {
      const int64_t end = first + output.anchors[l].size(0);
      const at::Tensor real = real_anchors(output.real, l, image, anchors_of_cell());
      const auto of_level = [&](const at::Tensor& all) {
        return rows_at(all.select(0, image).slice(0, first, end), real);
      };
      const at::Tensor anchors = rows_at(output.anchors[l], real), deltas = of_level(output.box_reg),
                       flat = of_level(output.cls_logits).flatten();
      // Few anchors may be above the threshold: only their probabilities are computed.
      const at::Tensor may = at::nonzero(flat > least_logit(options_.score_thresh)).squeeze(1),
                       probabilities = at::sigmoid(flat.index_select(0, may)),
                       passes = at::nonzero(probabilities > options_.score_thresh).squeeze(1),
                       above = may.index_select(0, passes), values = probabilities.index_select(0, passes);
      const at::Tensor best = ops::falling_order(values).slice(0, 0, options_.topk_candidates);
      const at::Tensor chosen = above.index_select(0, best), anchor = at::floor_divide(chosen, options_.num_classes);
      boxes.push_back(
          ops::box_decode(anchors.index_select(0, anchor), deltas.index_select(0, anchor), kPlainWeights, kBoxClip)
              .squeeze(1));
      scores.push_back(values.index_select(0, best));
      labels.push_back(at::remainder(chosen, options_.num_classes));
      first = end;
    }
    const at::Tensor clipped = ops::clip_boxes(at::cat(boxes, 0), static_cast<double>(image_sizes[b].first),
                                               static_cast<double>(image_sizes[b].second)),
                     score = at::cat(scores, 0), label = at::cat(labels, 0);
    const at::Tensor kept = ops::nms(clipped, score, label, options_.nms_thresh)
                                .slice(0, 0, options_.detections_per_img);
    all.push_back({clipped.index_select(0, kept), score.index_select(0, kept), label.index_select(0, kept)});
  }
  return all;
}

}  // namespace mnemo::heads
