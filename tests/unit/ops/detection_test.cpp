// Operations of detection: fast forms against naive references on random and degenerate boxes.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "ops/detection/boxes.h"
#include "ops/detection/detection_losses.h"
#include "ops/detection/mask_paste.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"
#include "ops/detection/roi_align.h"
#include "ops/naive/nms.h"
#include "ops/naive/roi_align.h"
#include "tests/support/expect_error.h"

namespace mnemo::ops {
namespace {

/// Boxes in an image of `side` pixels; coordinates are integers where `whole`, so that many are equal or touch.
at::Tensor random_boxes(int64_t count, double side, bool whole, at::ScalarType dtype) {
  const at::Tensor from = at::rand({count, 2}, at::kDouble) * side, size = at::rand({count, 2}, at::kDouble) * side / 3;
  const at::Tensor boxes = at::cat({from, from + size}, 1);
  return (whole ? boxes.round() : boxes).to(dtype);
}

TEST(Nms, IsTheNaiveReference) {
  at::manual_seed(5);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const bool whole : {false, true}) {
      for (const int64_t count : {0, 1, 2, 7, 150}) {
        for (const double threshold : {0.0, 0.3, 0.5, 0.7, 1.0}) {
          const at::Tensor boxes = random_boxes(count, whole ? 12 : 60, whole, dtype) - 20;
          const at::Tensor scores = at::randint(0, 20, {count}, at::kLong).to(dtype) / 20,
                           labels = at::randint(0, 3, {count}, at::kLong);
          for (const at::Tensor& of : {at::Tensor(), labels}) {
            EXPECT_TRUE(nms(boxes, scores, of, threshold).equal(nms_naive(boxes, scores, of, threshold)))
                << count << " boxes, threshold " << threshold << ", labels " << of.defined();
          }
        }
      }
    }
  }
}

// 0.3 is no float: an IoU of float(0.3) is above or below it as its own value says, not as the rounded threshold does.
TEST(Nms, TheThresholdIsNotRounded) {
  const at::Tensor boxes = at::tensor({0.f, 0.f, 10.f, 1.f, 0.f, 0.f, 3.f, 1.f}).view({2, 4});
  const at::Tensor scores = at::tensor({0.9f, 0.8f});
  EXPECT_GT(static_cast<double>(0.3f), 0.3);
  EXPECT_EQ(nms(boxes, scores, {}, 0.3).size(0), 1);
  EXPECT_EQ(nms(boxes, scores, {}, static_cast<double>(0.3f)).size(0), 2);
}

TEST(Nms, ScoresThatAreNoNumberComeLast) {
  const at::Tensor boxes = at::tensor({0., 0., 1., 1., 5., 5., 6., 6., 9., 9., 10., 10.}).view({3, 4});
  const at::Tensor scores = at::tensor({std::nan(""), 0.1, 0.7}, at::kDouble);
  EXPECT_TRUE(nms(boxes, scores, {}, 0.5).equal(at::tensor({2, 1, 0}, at::kLong)));
}

TEST(Matching, IsThatOfTheTable) {
  at::manual_seed(6);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const bool whole : {false, true}) {
      for (const int64_t count : {0, 1, 2, 9}) {
        for (const int64_t places : {1, 511, 512, 513, 1300}) {
          for (const bool low : {false, true}) {
            const at::Tensor anchors = random_boxes(places, whole ? 9 : 40, whole, dtype);
            at::Tensor boxes = random_boxes(count, whole ? 9 : 40, whole, dtype);
            if (count == 9) boxes[4].add_(1000);  // meets no anchor
            for (const MatchOptions& options : {MatchOptions{0.7, 0.3, low}, MatchOptions{0.5, 0.5, low}}) {
              EXPECT_TRUE(match_boxes(boxes, anchors, options).equal(match_table(box_iou(boxes, anchors), options)))
                  << count << " boxes, " << places << " anchors, low quality " << low << ", whole " << whole;
            }
          }
        }
      }
    }
  }
}

TEST(Matching, WithoutAnchorsThereIsNoMatch) {
  EXPECT_EQ(match_boxes(at::rand({3, 4}), at::empty({0, 4}), {0.7, 0.3, true}).size(0), 0);
}

struct Setting {
  double scale;
  RoiAlignOptions options;
  MapSizes real = {};
};

TEST(RoiAlign, IsTheNaiveReferenceWithItsGradient) {
  at::manual_seed(7);
  for (const Setting& setting :
       {Setting{0.25, {7, 7, 2, false}}, Setting{0.5, {3, 2, 0, false}}, Setting{1.0, {2, 5, 0, true}},
        Setting{0.25, {1, 1, 3, true}},
        // a padded batch
        Setting{0.25, {7, 7, 2, true}, {{13, 5}, {8, 9}}}, Setting{0.5, {3, 2, 0, false}, {{4, 9}, {13, 1}}}}) {
    const at::Tensor boxes = random_boxes(11, 60, false, at::kDouble) - 10;
    boxes[3] = at::tensor({5., 5., 5., 5.}, at::kDouble);
    boxes[4] = at::tensor({-500., -500., 900., 900.}, at::kDouble);
    boxes[5][2] = std::numeric_limits<double>::infinity();
    const at::Tensor rois = at::cat({at::randint(0, 2, {11, 1}, at::kLong).to(at::kDouble), boxes}, 1);
    const at::Tensor features = at::randn({2, 3, 13, 9}, at::kDouble).set_requires_grad(true),
                     copy = features.detach().clone().set_requires_grad(true);
    const MapSizes& real = setting.real;
    const at::Tensor fast = roi_align(features, rois, setting.scale, setting.options, real),
                     naive = roi_align_naive(copy, rois, setting.scale, setting.options, real);
    EXPECT_LE((fast - naive).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(fast[5].abs().max().item<double>(), 0.0);
    const at::Tensor weights = at::randn(fast.sizes(), at::kDouble);
    (fast * weights).sum().backward();
    (naive * weights).sum().backward();
    EXPECT_LE((features.grad() - copy.grad()).abs().max().item<double>(), 1e-12);
    const at::Tensor single = roi_align(features.detach().to(at::kFloat), rois.to(at::kFloat), setting.scale,
                                        setting.options, real);
    EXPECT_LE((single.to(at::kDouble) - naive).abs().max().item<double>(), 2e-5);
  }
}

TEST(RoiAlign, NoBoxes) {
  const at::Tensor features = at::randn({2, 3, 5, 5}).set_requires_grad(true);
  const at::Tensor pooled = roi_align(features, at::empty({0, 5}), 1.0, {2, 2, 2, false});
  EXPECT_EQ(pooled.sizes(), (std::vector<int64_t>{0, 3, 2, 2}));
  pooled.sum().backward();
  EXPECT_EQ(features.grad().abs().max().item<float>(), 0.f);
}

TEST(RoiAlign, RefusesOtherImagesAndBoxesWithoutEnd) {
  const at::Tensor features = at::randn({2, 1, 5, 5});
  const auto align = [&](double image, double end) {
    roi_align(features, at::tensor({image, 0., 0., end, end}, at::kDouble).view({1, 5}), 1.0, {2, 2, 0, false});
  };
  test::expect_error<base::ShapeError>([&] { align(2, 3); }, {"image of 0 to 1", "found 2"});
  test::expect_error<base::ShapeError>([&] { align(std::nan(""), 3); }, {"image of 0 to 1"});
  test::expect_error<base::InputError>([&] { align(0, 1e12); }, {"samples of a cell"});
}

// A box lands on one level, and rows keep the order of the boxes.
TEST(RoiAlign, EachBoxIsReadFromItsLevel) {
  std::vector<at::Tensor> maps;
  for (int64_t l = 0; l < 3; ++l)
    maps.push_back(at::full({2, 1, 64 >> l, 64 >> l}, static_cast<double>(l), at::kDouble));
  const at::Tensor first = at::tensor({0., 0., 200., 200., 0., 0., 20., 20., 0., 0., 110., 110.}).view({3, 4}),
                   second = at::tensor({4., 4., 34., 34.}).view({1, 4});
  const RoiLevels levels{56, 3, {0.25, 0.125, 0.0625}};
  const std::vector<at::Tensor> boxes = {first.to(at::kDouble), second.to(at::kDouble)};
  const at::Tensor pooled = roi_align_levels(maps, boxes, levels, {1, 1, 2, true});
  EXPECT_TRUE(pooled.flatten().equal(at::tensor({2., 0., 1., 0.}, at::kDouble)));
  EXPECT_TRUE(roi_levels(at::zeros({1, 4}, at::kDouble), levels).equal(at::zeros({1}, at::kLong)));
}

TEST(FocalLoss, IsFiniteWithItsGradientFarOut) {
  for (const double gamma : {0.0, 0.5, 2.0}) {
    const at::Tensor logits = at::tensor({-60., 60., -60., 60., 0.}, at::kDouble).set_requires_grad(true);
    const at::Tensor loss = focal_loss(logits, at::tensor({0., 1., 1., 0., 1.}, at::kDouble), 0.25, gamma);
    EXPECT_TRUE(at::isfinite(loss).all().item<bool>());
    loss.sum().backward();
    EXPECT_TRUE(at::isfinite(logits.grad()).all().item<bool>()) << gamma;
  }
}

TEST(PasteMasks, BoxesThatAreNotFiniteOrFarAwayGiveNothing) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor boxes = at::tensor(
                               {0., 0., inf, 5., std::nan(""), 0., 4., 4., 1e8, 1e8, 2e8, 2e8, -1e300, 0., 1e300, 3.},
                               at::kDouble)
                               .view({4, 4});
  for (const MaskPaste method : {MaskPaste::integer, MaskPaste::continuous}) {
    const at::Tensor image = paste_masks(at::ones({4, 7, 7}, at::kDouble), boxes, 9, 11, method);
    EXPECT_EQ(image.abs().max().item<double>(), 0.0);
  }
}

// A mask of ones fills its box.
TEST(PasteMasks, FillTheirBoxes) {
  const at::Tensor boxes = at::tensor({2., 1., 9., 6.}, at::kDouble).view({1, 4});
  for (const MaskPaste method : {MaskPaste::integer, MaskPaste::continuous}) {
    const at::Tensor mask = paste_masks(at::ones({1, 14, 14}, at::kDouble), boxes, 9, 12, method)[0] > 0.5;
    EXPECT_TRUE(mask.slice(0, 1, 6).slice(1, 2, 9).all().item<bool>());
    EXPECT_LE(mask.sum().item<int64_t>(), 7 * 9);
  }
}

}  // namespace
}  // namespace mnemo::ops
