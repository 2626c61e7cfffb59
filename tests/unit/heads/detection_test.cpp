// Heads of detection beyond their golden files: batches, images without objects, gradients.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "heads/detection/fpn.h"
#include "heads/detection/retinanet.h"
#include "heads/detection/roi_heads.h"
#include "heads/detection/rpn.h"
#include "ops/detection/mask_paste.h"

namespace mnemo::heads {
namespace {

constexpr int64_t kWidth = 8, kClasses = 3;

std::vector<at::Tensor> random_maps(int64_t batch) {
  std::vector<at::Tensor> maps;
  for (int64_t l = 0; l < 4; ++l) maps.push_back(at::randn({batch, kWidth, 16 >> l, 24 >> l}, at::kDouble));
  return maps;
}
constexpr PixelSize kImage = {64, 96};

AnchorOptions small_anchors(size_t levels) {
  AnchorOptions out;
  for (size_t l = 0; l < levels; ++l) out.levels.push_back({{static_cast<double>(8 << l)}, {0.5, 1.0, 2.0}});
  return out;
}

std::vector<at::Tensor> one_of(const std::vector<at::Tensor>& maps, int64_t image) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& map : maps) out.push_back(map.slice(0, image, image + 1));
  return out;
}

void expect_same(const Detections& a, const Detections& b) {
  ASSERT_EQ(a.boxes.size(0), b.boxes.size(0));
  EXPECT_TRUE(at::allclose(a.boxes, b.boxes, 1e-9, 1e-9));
  EXPECT_TRUE(at::allclose(a.scores, b.scores, 1e-9, 1e-9));
  EXPECT_TRUE(a.labels.equal(b.labels));
  if (a.masks.defined()) {
    EXPECT_TRUE(at::allclose(a.masks, b.masks, 1e-9, 1e-9));
  }
}

ObjectTargets some_objects() {
  const at::Tensor boxes = at::tensor({4., 6., 30., 40., 50., 10., 90., 50.}, at::kDouble).view({2, 4});
  at::Tensor masks = at::zeros({2, 64, 96}, at::kBool);
  masks[0].slice(0, 6, 40).slice(1, 4, 30).fill_(true);
  masks[1].slice(0, 10, 30).slice(1, 50, 90).fill_(true);
  return {boxes, at::tensor({1, 2}, at::kLong), masks};
}
ObjectTargets no_objects() {
  return {at::zeros({0, 4}, at::kDouble), at::zeros({0}, at::kLong), at::zeros({0, 64, 96}, at::kBool)};
}

void expect_gradients_everywhere(const layers::ParameterSet& set) {
  for (const auto& [name, tensor] : set.named()) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    EXPECT_TRUE(at::isfinite(tensor.grad()).all().item<bool>()) << name;
    EXPECT_GT(tensor.grad().abs().max().item<double>(), 0.0) << name;
  }
}

// Probabilities close to the threshold are on their own side of it.
TEST(RetinaNet, ThresholdIsOfProbabilities) {
  RetinaNetOptions options{.in_channels = kWidth, .num_classes = kClasses, .num_convs = 1};
  options.anchors = small_anchors(4);
  options.score_thresh = 0.3;
  options.nms_thresh = 1.0;
  options.topk_candidates = options.detections_per_img = 100000;
  layers::ParameterSet set(3, at::kDouble);
  const RetinaNetHead head(options, set.root());
  RetinaNetHead::Output output = head(random_maps(1), kImage);
  const int64_t count = output.cls_logits.numel();
  output.cls_logits = at::linspace(-1.0, -0.7, count, at::kDouble).view_as(output.cls_logits);
  const at::Tensor probabilities = at::sigmoid(output.cls_logits.flatten()),
                   expected = std::get<0>(probabilities.masked_select(probabilities > 0.3).sort(0, true));
  ASSERT_GT(expected.size(0), count / 10);
  ASSERT_LT(expected.size(0), count);
  const std::vector<PixelSize> sizes = {kImage};
  EXPECT_TRUE(head.detect(output, sizes)[0].scores.equal(expected));
}

// The detections of an image do not depend on the other images of its batch.
TEST(RetinaNet, ImagesAreApart) {
  at::manual_seed(2);
  RetinaNetOptions options{.in_channels = kWidth, .num_classes = kClasses, .num_convs = 2};
  options.anchors = small_anchors(4);
  options.score_thresh = 0.005;
  layers::ParameterSet set(3, at::kDouble);
  const RetinaNetHead head(options, set.root());
  const std::vector<at::Tensor> maps = random_maps(2);
  const std::vector<PixelSize> sizes = {{60, 70}, {64, 96}};
  const auto both = head.detect(head(maps, kImage), sizes);
  for (int64_t image = 0; image < 2; ++image) {
    const std::vector<PixelSize> own = {sizes[static_cast<size_t>(image)]};
    const auto alone = head.detect(head(one_of(maps, image), kImage), own);
    ASSERT_GT(alone[0].boxes.size(0), 10);
    expect_same(both[static_cast<size_t>(image)], alone[0]);
    EXPECT_LE(alone[0].boxes.slice(1, 2, 3).max().item<double>(), static_cast<double>(own[0].second));
  }
}

TEST(RetinaNet, EveryParameterLearns) {
  at::manual_seed(4);
  for (const BoxLoss loss : {BoxLoss::l1, BoxLoss::smooth_l1, BoxLoss::giou}) {
    RetinaNetOptions options{.in_channels = kWidth, .num_classes = kClasses, .num_convs = 2, .box_loss = loss};
    options.anchors = small_anchors(4);
    layers::ParameterSet set(3, at::kDouble);
    const RetinaNetHead head(options, set.root());
    const std::vector<ObjectTargets> targets = {some_objects(), no_objects()};
    const auto losses = head.losses(head(random_maps(2), kImage), targets);
    (losses.cls + losses.box).backward();
    expect_gradients_everywhere(set);
  }
}

RoiHeadsOptions small_roi_heads() {
  RoiHeadsOptions out;
  out.levels = {24, 4, {0.25, 0.125, 0.0625, 0.03125}};
  out.box_head.in_channels = kWidth;
  out.box_head.num_classes = kClasses + 1;
  out.box_head.hidden = 12;
  out.mask_head = MaskHeadOptions{kWidth, {6, 5}, 4, kClasses + 1};
  out.batch_size_per_image = 16;
  out.score_thresh = 0.1;
  return out;
}

TEST(MaskRcnn, ImagesAreApart) {
  at::manual_seed(5);
  RpnOptions rpn_options{.in_channels = kWidth};
  rpn_options.anchors = small_anchors(4);
  layers::ParameterSet set(3, at::kDouble);
  const Rpn rpn(rpn_options, set.root() / "rpn");
  const RoiHeads roi(small_roi_heads(), set.root());
  const auto detect = [&](const std::vector<at::Tensor>& maps, const std::vector<PixelSize>& sizes) {
    std::vector<at::Tensor> boxes;
    for (const Proposals& each : rpn_proposals(rpn_options, rpn(maps, kImage), sizes, {100, 40}))
      boxes.push_back(each.boxes);
    return roi.detect(maps, boxes, roi.boxes(maps, boxes), sizes);
  };
  const std::vector<at::Tensor> maps = random_maps(2);
  const auto both = detect(maps, {{60, 70}, {64, 96}});
  const auto first = detect(one_of(maps, 0), {{60, 70}}), second = detect(one_of(maps, 1), {{64, 96}});
  ASSERT_GT(first[0].boxes.size(0), 3);
  expect_same(both[0], first[0]);
  expect_same(both[1], second[0]);
}

TEST(MaskRcnn, EveryParameterLearnsAlsoBesideAnImageWithoutObjects) {
  at::manual_seed(6);
  RpnOptions rpn_options{.in_channels = kWidth};
  rpn_options.anchors = small_anchors(4);
  layers::ParameterSet set(3, at::kDouble);
  const Rpn rpn(rpn_options, set.root() / "rpn");
  const RoiHeads roi(small_roi_heads(), set.root());
  const std::vector<at::Tensor> maps = random_maps(2);
  const std::vector<ObjectTargets> targets = {some_objects(), no_objects()};
  const Rpn::Output output = rpn(maps, kImage);
  const std::vector<PixelSize> sizes = {kImage, kImage};
  const auto proposals = rpn_proposals(rpn_options, output, sizes, {100, 40});
  std::vector<SampledRegions> regions;
  for (int64_t b = 0; b < 2; ++b)
    regions.push_back(
        roi.sample(proposals[static_cast<size_t>(b)].boxes, targets[static_cast<size_t>(b)], b, random_order()));
  EXPECT_EQ(regions[1].labels.max().item<int64_t>(), 0);
  const auto first = rpn_losses(rpn_options, output, targets, random_order());
  const auto second = roi.losses(maps, regions, targets);
  (first.objectness + first.box + second.cls + second.box + second.mask).backward();
  expect_gradients_everywhere(set);
}

// The targets of an aligned head, laid back over the box, are the mask; others are shifted by half a pixel.
TEST(MaskTargets, LieWhereMasksAreLaid) {
  const at::Tensor place = at::arange(40, at::kDouble) + 0.5;
  const at::Tensor disc = ((place.view({1, 40, 1}) - 20).pow(2) + (place.view({1, 1, 40}) - 20).pow(2)).le(64);
  const at::Tensor box = at::tensor({12., 12., 28., 28.}, at::kDouble).view({1, 4}), first = at::zeros({1}, at::kLong);
  const auto overlap = [&](bool aligned) {
    const at::Tensor targets = mask_targets(disc, box, first, 28, aligned);
    const at::Tensor laid = ops::paste_masks(targets, box, 40, 40, ops::MaskPaste::continuous).ge(0.5);
    return (laid & disc).sum().item<double>() / (laid | disc).sum().item<double>();
  };
  EXPECT_EQ(overlap(true), 1.0);
  EXPECT_LT(overlap(false), 0.95);
}

TEST(MaskRcnn, NoRegions) {
  layers::ParameterSet set(3, at::kDouble);
  const RoiHeads roi(small_roi_heads(), set.root());
  const std::vector<ObjectTargets> targets = {no_objects()};
  const std::vector<SampledRegions> regions = {
      roi.sample(at::empty({0, 4}, at::kDouble), targets[0], 0, random_order())};
  ASSERT_EQ(regions[0].boxes.size(0), 0);
  const auto losses = roi.losses(random_maps(1), regions, targets);
  for (const at::Tensor& loss : {losses.cls, losses.box, losses.mask}) EXPECT_EQ(loss.item<double>(), 0.0);
  (losses.cls + losses.box + losses.mask).backward();
}

// A batch of images without objects has losses, and those of boxes and masks are 0.
TEST(MaskRcnn, NothingToFind) {
  at::manual_seed(7);
  RpnOptions rpn_options{.in_channels = kWidth};
  rpn_options.anchors = small_anchors(4);
  layers::ParameterSet set(3, at::kDouble);
  const Rpn rpn(rpn_options, set.root() / "rpn");
  const RoiHeads roi(small_roi_heads(), set.root());
  const std::vector<at::Tensor> maps = random_maps(1);
  const std::vector<ObjectTargets> targets = {no_objects()};
  const Rpn::Output output = rpn(maps, kImage);
  const std::vector<PixelSize> sizes = {kImage};
  const auto proposals = rpn_proposals(rpn_options, output, sizes, {100, 40});
  const std::vector<SampledRegions> regions = {roi.sample(proposals[0].boxes, targets[0], 0, random_order())};
  const auto first = rpn_losses(rpn_options, output, targets, random_order());
  const auto second = roi.losses(maps, regions, targets);
  EXPECT_EQ(first.box.item<double>(), 0.0);
  EXPECT_EQ(second.box.item<double>(), 0.0);
  EXPECT_EQ(second.mask.item<double>(), 0.0);
  EXPECT_GT(second.cls.item<double>(), 0.0);
  (first.objectness + first.box + second.cls + second.box + second.mask).backward();
}

}  // namespace
}  // namespace mnemo::heads
