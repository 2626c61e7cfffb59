#include "heads/detection/detector_head.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "heads/detection/sides_divisor.h"
#include "heads/detection/simple_pyramid.h"
#include "ops/image/image_rows.h"

namespace mnemo::heads {
namespace {

/// Maps channel by channel, as RoIAlign reads them.
std::vector<at::Tensor> planes_of(const std::vector<at::Tensor>& maps) {
  std::vector<at::Tensor> planes;
  for (const at::Tensor& map : maps) planes.push_back(map.contiguous());
  return planes;
}

std::vector<at::Tensor> boxes_of(const std::vector<Proposals>& proposals) {
  std::vector<at::Tensor> boxes;
  for (const Proposals& each : proposals) boxes.push_back(each.boxes);
  return boxes;
}

/// The real cells of the levels; empty if all cells are real.
std::vector<core::RealCells> real_of(std::span<const core::ImageLevel> levels) {
  std::vector<core::RealCells> real;
  for (const core::ImageLevel& level : levels) real.push_back(level.real);
  if (std::ranges::all_of(real, &core::RealCells::all)) real.clear();
  return real;
}

/// The real cells of image b, as a batch of one.
std::vector<core::RealCells> one_image(const std::vector<core::RealCells>& real, size_t b) {
  std::vector<core::RealCells> own;
  for (const core::RealCells& level : real) own.push_back({level.grid, {level.of_image(static_cast<int64_t>(b))}});
  return own;
}

/// Image b of maps [B,D,h,w], as a batch of one.
std::vector<at::Tensor> one_image(const std::vector<at::Tensor>& maps, size_t b) {
  const auto image = static_cast<int64_t>(b);
  std::vector<at::Tensor> own;
  for (const at::Tensor& map : maps) own.push_back(map.slice(0, image, image + 1));
  return own;
}

constexpr const char* kNoClasses =
    "a detector finds objects and says nothing of whole images: mnemo detect, and [data] with annotated images";

}  // namespace

void DetectorHeadOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(model.whole && model.input == core::InputKind::images, "head",
                "a detector reads the stages of an image backbone, found backbone.type = \"{}\"", model.backbone);
}

int64_t sides_divisor(const DetectorParts& parts, int64_t stride) {
  return parts.simple_pyramid ? SimplePyramid::kStride * 2
                              : stride << (parts.first_stage + parts.fpn.in_channels.size() - 1);
}

DetectorHead::DetectorHead(const DetectorParts& parts, int64_t stride, const layers::Scope& scope)
    : parts_(parts),
      stride_(parts.simple_pyramid ? SimplePyramid::kStride / 4 : stride),
      divisor_(sides_divisor(parts, stride)) {
  if (parts.simple_pyramid) {
    neck_ = std::make_unique<SimplePyramid>(parts.fpn, parts.first_stage, scope / "neck");
  } else {
    neck_ = std::make_unique<Fpn>(parts.fpn, scope / "neck");
  }
  if (parts.type == DetectorType::retinanet) {
    retinanet_.emplace(parts.retinanet, scope / "head");
  } else {
    rpn_.emplace(parts.rpn, scope / "rpn");
    roi_.emplace(parts.roi, scope);
  }
}

at::Tensor DetectorHead::rows(std::span<const core::ImageLevel> levels) const {
  std::vector<at::Tensor> stages, flat;
  for (const core::ImageLevel& level : read(levels))
    stages.push_back(ops::rows_to_image(level.rows, level.grid.height, level.grid.width));
  const std::vector<core::RealCells> real = real_of(read(levels));
  for (const at::Tensor& map : (*neck_)(stages, real)) flat.push_back(ops::image_to_rows(map));
  return at::cat(flat, 1);
}

DetectedImages DetectorHead::images(PixelSize padded, std::vector<PixelSize> sizes) const {
  DetectedImages images{padded, std::move(sizes)};
  if (parts_.padding == DetectorPadding::seen) return images;
  const auto [height, width] = padded;
  std::vector<core::Grid> own;
  for (const auto& [rows, columns] : images.sizes) own.push_back({rows, columns});
  std::vector<core::RealCells> stages;
  for (size_t l = 0; l < parts_.fpn.in_channels.size(); ++l) {
    const int64_t stride = parts_.simple_pyramid ? SimplePyramid::kStride : stride_ << (parts_.first_stage + l);
    stages.push_back(core::RealCells::of("detector", own, height, width, {height / stride, width / stride}));
  }
  if (!std::ranges::all_of(stages, &core::RealCells::all)) images.real = neck_->real(stages);
  return images;
}

/// The maps that rows() has joined: each stage halves the grid, and extra maps halve it, rounded up.
std::vector<at::Tensor> DetectorHead::maps(const at::Tensor& rows, PixelSize image) const {
  const auto [height, width] = image;
  base::require(height > 0 && width > 0 && height % divisor_ == 0 && width % divisor_ == 0,
                "detector: expected images whose sides are multiples of {}, found {} x {}", divisor_, height, width);
  const size_t stages = parts_.simple_pyramid ? SimplePyramid::kLevels - parts_.first_stage
                                              : parts_.fpn.in_channels.size(),
               count = stages + static_cast<size_t>(num_extra(parts_.fpn.extra));
  std::vector<at::Tensor> maps;
  int64_t first = 0, h = height / (stride_ << parts_.first_stage), w = width / (stride_ << parts_.first_stage);
  for (size_t l = 0; l < count; ++l) {
    maps.push_back(ops::rows_to_image(rows.slice(1, first, first + h * w), h, w));
    first += h * w;
    h = (h + 1) / 2;
    w = (w + 1) / 2;
  }
  base::ensure(first == rows.size(1), "the pyramid of {} x {} pixels has {} rows, found {}", height, width, first,
               rows.size(1));
  return maps;
}

void DetectorHead::run(const at::Tensor& rows, int64_t height, int64_t width) const {
  detect(rows, {{height, width}, {static_cast<size_t>(rows.size(0)), {height, width}}});
}

bool DetectorHead::shares_weights_with(const core::Head& other) const {
  const auto* detector = dynamic_cast<const DetectorHead*>(&other);
  // RetinaNet's pyramid begins a stage later than the others' and goes on in another way.
  return detector != nullptr && detector->parts_.fpn.extra == parts_.fpn.extra;
}

core::ClassRows DetectorHead::class_rows(std::string_view parameter) const {
  for (const std::string_view layer :
       {"head.cls_logits.", "box_head.cls_score.", "box_head.box_reg.", "mask_head.mask_logits."})
    if (parameter.starts_with(layer)) return core::ClassRows::several;
  return core::ClassRows::none;
}

at::Tensor DetectorHead::logits(const at::Tensor&) const { base::input_error("{}", kNoClasses); }
at::Tensor DetectorHead::nll(const at::Tensor&, const at::Tensor&) const { base::input_error("{}", kNoClasses); }

std::vector<std::string> DetectorHead::loss_names() const {
  if (retinanet_) return {"cls", "box"};
  std::vector<std::string> names = {"objectness", "rpn_box", "cls", "box"};
  if (gives_masks()) names.emplace_back("mask");
  return names;
}

std::vector<at::Tensor> DetectorHead::image_losses(const std::vector<at::Tensor>& maps, const DetectedImages& images,
                                                   size_t b, const ObjectTargets& targets,
                                                   const DrawOrder& order) const {
  const DrawOrder own = [&](int64_t, bool positive, int64_t count) {
    return order(static_cast<int64_t>(b), positive, count);
  };
  const std::vector<core::RealCells> real = one_image(images.real, b);
  if (retinanet_) {
    const auto losses = retinanet_->losses((*retinanet_)(maps, images.padded, real), {&targets, 1});
    return {losses.cls, losses.box};
  }
  const Rpn::Output output = (*rpn_)(maps, images.padded, real);
  const std::vector<Proposals> proposals = rpn_proposals(parts_.rpn, output, {&images.sizes[b], 1},
                                                         parts_.rpn.training);
  const Rpn::Losses first = rpn_losses(parts_.rpn, output, {&targets, 1}, own);
  ObjectTargets objects = targets;
  objects.labels = objects.labels + 1;  // 0 is the background
  const SampledRegions regions = roi_->sample(proposals[0].boxes, objects, 0, own);
  const RoiHeads::Losses second = roi_->losses(planes_of(maps), {&regions, 1}, {&objects, 1}, real);
  std::vector<at::Tensor> losses = {first.objectness, first.box, second.cls, second.box};
  if (second.mask.defined()) losses.push_back(second.mask);
  return losses;
}

NamedLosses DetectorHead::losses(const at::Tensor& rows, const DetectedImages& images,
                                 std::span<const ObjectTargets> targets, const DrawOrder& order) const {
  base::require(targets.size() == images.sizes.size() && rows.size(0) == static_cast<int64_t>(targets.size()),
                "detector: expected sizes and targets of {} images, found {} and {}", rows.size(0), images.sizes.size(),
                targets.size());
  const std::vector<at::Tensor> all = maps(rows, images.padded);
  NamedLosses losses;
  for (std::string& name : loss_names()) losses.emplace_back(std::move(name), at::Tensor());
  for (size_t b = 0; b < targets.size(); ++b) {
    const std::vector<at::Tensor> own = image_losses(one_image(all, b), images, b, targets[b], order);
    for (size_t i = 0; i < losses.size(); ++i) losses[i].second = b == 0 ? own[i] : losses[i].second + own[i];
  }
  for (auto& [name, sum] : losses) sum = sum / static_cast<double>(targets.size());
  return losses;
}

std::vector<Detections> DetectorHead::detect(const at::Tensor& rows, const DetectedImages& images) const {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = maps(rows, images.padded);
  const auto& [padded, sizes, real] = images;
  if (retinanet_) return retinanet_->detect((*retinanet_)(all, padded, real), sizes);
  const std::vector<at::Tensor> boxes = boxes_of(
      rpn_proposals(parts_.rpn, (*rpn_)(all, padded, real), sizes, parts_.rpn.evaluation));
  const std::vector<at::Tensor> planes = planes_of(all);
  std::vector<Detections> found = roi_->detect(planes, boxes, roi_->boxes(planes, boxes, real), sizes, real);
  for (Detections& each : found) each.labels = each.labels - 1;
  return found;
}

const DetectorHead& detector_head(const core::Model& model, std::string_view who) {
  const auto* head = dynamic_cast<const DetectorHead*>(core::level_head(model));
  base::require(head != nullptr,
                "{}: expected a detector, a model with head.type retinanet, faster_rcnn or mask_rcnn; found {} with "
                "another head",
                who, core::model_of(core::kind_of(model.input())));
  return *head;
}

}  // namespace mnemo::heads
