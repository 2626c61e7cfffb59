#include "heads/detection/roi_heads.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"

namespace mnemo::heads {

RoiHeads::RoiHeads(const RoiHeadsOptions& options, const layers::Scope& scope)
    : options_(options), box_head_(options.box_head, scope / "box_head") {
  base::require(options.roi_levels.size() == options.levels.scales.size(),
                "RoI heads: expected a scale for each of {} levels, found {}", options.roi_levels.size(),
                options.levels.scales.size());
  if (options.mask_head) mask_head_.emplace(*options.mask_head, scope / "mask_head");
}

at::Tensor RoiHeads::pooled(std::span<const at::Tensor> maps, std::span<const at::Tensor> boxes, RealLevels real,
                            const ops::RoiAlignOptions& pool) const {
  std::vector<at::Tensor> chosen;
  std::vector<ops::MapSizes> sizes;
  for (const int64_t level : options_.roi_levels) {
    chosen.push_back(maps[static_cast<size_t>(level)]);
    if (!real.empty()) sizes.push_back(map_sizes(real[static_cast<size_t>(level)]));
  }
  return ops::roi_align_levels(chosen, boxes, options_.levels, pool, sizes);
}

SampledRegions RoiHeads::sample(const at::Tensor& proposals, const ObjectTargets& targets, int64_t image,
                                const DrawOrder& order) const {
  const at::Tensor boxes = at::cat({proposals, targets.boxes}, 0);
  const at::Tensor matches = ops::match_boxes(targets.boxes, boxes, {options_.fg_iou, options_.bg_iou, false});
  const at::Tensor object = matches.clamp_min(0);
  at::Tensor labels = targets.labels.size(0) == 0 ? at::zeros_like(matches) : targets.labels.index_select(0, object);
  labels = labels.masked_fill(matches == ops::kBackground, 0).masked_fill(matches == ops::kBetweenThresholds, -1);
  // One after the other, as both draw from one generator.
  const at::Tensor negative = order(image, false, (labels == 0).sum().item<int64_t>()),
                   positive = order(image, true, (labels >= 1).sum().item<int64_t>());
  const ops::BalancedSample sample = ops::sample_balanced(labels, options_.batch_size_per_image,
                                                          options_.positive_fraction, positive, negative);
  const at::Tensor chosen = at::nonzero(sample.positive | sample.negative).squeeze(1);
  return {boxes.index_select(0, chosen), labels.index_select(0, chosen), object.index_select(0, chosen)};
}

BoxHead::Output RoiHeads::boxes(std::span<const at::Tensor> maps, std::span<const at::Tensor> proposals,
                                RealLevels real) const {
  return box_head_(pooled(maps, proposals, real, options_.box_pool));
}

RoiHeads::Losses RoiHeads::losses(std::span<const at::Tensor> maps, std::span<const SampledRegions> regions,
                                  std::span<const ObjectTargets> targets, RealLevels real) const {
  std::vector<at::Tensor> boxes, labels, wanted;
  for (size_t b = 0; b < regions.size(); ++b) {
    boxes.push_back(regions[b].boxes);
    labels.push_back(regions[b].labels);
    const bool none = targets[b].boxes.size(0) == 0;
    const at::Tensor objects = none ? regions[b].boxes : targets[b].boxes.index_select(0, regions[b].matched);
    wanted.push_back(ops::box_encode(regions[b].boxes, objects, options_.box_head.weights));
  }
  const BoxHead::Losses box = box_head_.losses(this->boxes(maps, boxes, real), at::cat(labels, 0), at::cat(wanted, 0));
  return {box.cls, box.box, mask_head_ ? mask_losses(maps, regions, targets, real) : at::Tensor()};
}

at::Tensor RoiHeads::mask_losses(std::span<const at::Tensor> maps, std::span<const SampledRegions> regions,
                                 std::span<const ObjectTargets> targets, RealLevels real) const {
  std::vector<at::Tensor> boxes, labels, wanted;
  const int64_t side = 2 * options_.mask_pool.height;
  for (size_t b = 0; b < regions.size(); ++b) {
    const at::Tensor positive = at::nonzero(regions[b].labels > 0).squeeze(1);
    boxes.push_back(regions[b].boxes.index_select(0, positive));
    labels.push_back(regions[b].labels.index_select(0, positive));
    if (positive.size(0) == 0) continue;
    wanted.push_back(mask_targets(targets[b].masks, boxes.back(), regions[b].matched.index_select(0, positive), side,
                                  options_.mask_pool.aligned));
  }
  const at::Tensor logits = (*mask_head_)(pooled(maps, boxes, real, options_.mask_pool));
  return mask_loss(logits, at::cat(labels, 0), wanted.empty() ? at::Tensor() : at::cat(wanted, 0));
}

Detections RoiHeads::detect_boxes(const at::Tensor& proposals, const at::Tensor& logits, const at::Tensor& deltas,
                                  PixelSize image) const {
  const int64_t classes = options_.box_head.num_classes, count = proposals.size(0);
  const at::Tensor decoded = ops::clip_boxes(ops::box_decode(proposals, deltas, options_.box_head.weights, kBoxClip),
                                             static_cast<double>(image.first), static_cast<double>(image.second));
  const at::Tensor boxes = decoded.slice(1, 1).reshape({-1, 4}), scores = at::softmax(logits, -1).slice(1, 1).flatten(),
                   labels = at::arange(1, classes, proposals.options().dtype(at::kLong)).expand({count, -1}).flatten();
  const at::Tensor good = at::nonzero((scores > options_.score_thresh) & large_enough(boxes, options_.min_size))
                              .squeeze(1);
  const at::Tensor kept = ops::nms(boxes.index_select(0, good), scores.index_select(0, good),
                                   labels.index_select(0, good), options_.nms_thresh)
                              .slice(0, 0, options_.detections_per_img);
  const at::Tensor chosen = good.index_select(0, kept);
  return {boxes.index_select(0, chosen), scores.index_select(0, chosen), labels.index_select(0, chosen)};
}

std::vector<Detections> RoiHeads::detect(std::span<const at::Tensor> maps, std::span<const at::Tensor> proposals,
                                         const BoxHead::Output& output, std::span<const PixelSize> image_sizes,
                                         RealLevels real) const {
  const at::NoGradGuard no_grad;
  std::vector<Detections> all;
  std::vector<at::Tensor> boxes, labels;
  int64_t first = 0;
  for (size_t b = 0; b < proposals.size(); ++b) {
    const int64_t end = first + proposals[b].size(0);
    all.push_back(detect_boxes(proposals[b], output.cls_logits.slice(0, first, end),
                               output.box_reg.slice(0, first, end), image_sizes[b]));
    boxes.push_back(all.back().boxes);
    labels.push_back(all.back().labels);
    first = end;
  }
  if (!mask_head_) return all;
  const at::Tensor logits = (*mask_head_)(pooled(maps, boxes, real, options_.mask_pool));
  const at::Tensor masks = at::sigmoid(mask_of_label(logits, at::cat(labels, 0)));
  first = 0;
  for (Detections& each : all) {
    each.masks = masks.slice(0, first, first + each.boxes.size(0));
    first += each.boxes.size(0);
  }
  return all;
}

}  // namespace mnemo::heads
