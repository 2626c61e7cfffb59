// Detectors on backbones with levels: published sizes, training steps with and without a cache, detections.
#include "models/detection_options.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/options.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "ops/detection/boxes.h"
#include "tests/support/detector.h"
#include "tests/support/expect_error.h"

namespace mnemo::models {
namespace {

using test::detections;
using test::detector_losses;

ModelOptions options_from(const std::string& toml) { return read_model_options(base::parse_toml(toml, "model")); }

TEST(DetectorPresets, HaveTheirPublishedSizes) {
  for (const DetectorPreset& preset : detector_presets()) {
    const ImageModel detector(options_from(fmt::format("preset = \"{}\"", preset.name)), 0, at::kFloat, {}, at::kMeta);
    int64_t trained = 0;
    const auto* resnet = std::get_if<backbones::ResnetOptions>(&detector.options().backbone.vision());
    for (const auto& [name, tensor] : detector.parameters().named()) {
      const bool frozen = resnet != nullptr &&
                          (name.starts_with("backbone.stem.") || name.starts_with("backbone.stages.0."));
      trained += frozen ? 0 : tensor.numel();
    }
    EXPECT_NEAR(static_cast<double>(trained) / 1e6, preset.published_millions, 0.06) << preset.name;
    if (resnet != nullptr) {
      EXPECT_EQ(resnet->frozen_stages, 1);
    }
  }
}

constexpr const char* kPvt = R"(
[backbone]
type = "pvt"
image_size = [64, 64]
dims = [8, 8, 16, 16]
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
mlp_ratios = [2, 2, 2, 2]
sr_ratios = [8, 4, 2, 1]
)";
constexpr const char* kPvtV2 = R"(
[backbone]
type = "pvt_v2"
image_size = [64, 64]
dims = [8, 8, 16, 16]
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
mlp_ratios = [2, 2, 2, 2]
sr_ratios = [8, 4, 2, 1]
)";
constexpr const char* kSwin = R"(
[backbone]
type = "swin"
image_size = [64, 64]
dim = 8
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
window_size = [4, 4]
)";

ImageModel small_detector(const std::string& head, const std::string& model, at::ScalarType dtype,
                          bool cached = false) {
  const std::string sizes = head == "retinanet"     ? "num_convs = 1"
                            : head == "faster_rcnn" ? "hidden = 16"
                                                    : "hidden = 16\nmask_convs = 1";
  const std::string text = fmt::format("{}[head]\ntype = \"{}\"\nnum_classes = 3\nchannels = 8\n{}\n{}", model, head,
                                       sizes, cached ? "[[memory]]\ntype = \"grc\"\n" : "");
  return {options_from(text), 1, dtype};
}

/// Two images of unequal sizes, and boxes in the first alone.
struct Sample {
  test::ImageBatch images{at::rand({2, 3, 96, 64}, at::kDouble), {{96, 64}, {70, 50}}};
  std::vector<heads::ObjectTargets> targets;
  Sample() {
    at::Tensor masks = at::zeros({2, 96, 64}, at::kBool);
    masks[0].slice(0, 8, 60).slice(1, 10, 50).fill_(true);
    masks[1].slice(0, 40, 90).slice(1, 4, 30).fill_(true);
    targets.push_back({at::tensor({10., 8., 50., 60., 4., 40., 30., 90.}, at::kDouble).view({2, 4}),
                       at::tensor({0, 2}, at::kLong), masks});
    targets.push_back({at::zeros({0, 4}, at::kDouble), at::zeros({0}, at::kLong), masks.slice(0, 0, 0)});
  }
};

TEST(Detector, TrainsOnEveryBackboneWithLevels) {
  for (const char* model : {kPvt, kPvtV2, kSwin}) {
    for (const auto& [head, parts] : {std::pair("retinanet", 2U), {"faster_rcnn", 4U}, {"mask_rcnn", 5U}}) {
      for (const bool cached : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} cached {}", model, head, cached));
        at::manual_seed(3);
        const ImageModel detector = small_detector(head, model, at::kDouble, cached);
        const Sample sample;
        const test::DetectorLosses losses = detector_losses(detector, sample.images, sample.targets);
        EXPECT_EQ(losses.parts.size(), parts);
        losses.sum().backward();
        for (const auto& [name, tensor] : detector.parameters().named()) {
          if (name.find("final_norm") != std::string::npos || name.find("class_token") != std::string::npos) continue;
          EXPECT_TRUE(tensor.grad().defined() && at::isfinite(tensor.grad()).all().item<bool>()) << name;
        }
        const auto found = detections(detector, sample.images);
        ASSERT_EQ(found.size(), 2U);
        for (size_t b = 0; b < 2; ++b) {
          if (found[b].boxes.size(0) == 0) continue;
          EXPECT_GE(found[b].labels.min().item<int64_t>(), 0);
          EXPECT_LT(found[b].labels.max().item<int64_t>(), 3);
          EXPECT_LE(found[b].boxes.slice(1, 3, 4).max().item<double>(),
                    static_cast<double>(sample.images.sizes[b].first));
        }
      }
    }
  }
}

// The cache of GRC is updated in training alone, at images of another size than the position tables.
TEST(Detector, ItsCacheIsThatOfTraining) {
  at::manual_seed(3);
  ImageModel detector = small_detector("retinanet", kPvt, at::kDouble, true);
  const Sample sample;
  const auto scores = [&] { return detector_losses(detector, sample.images, sample.targets).sum().item<double>(); };
  const double before = scores();
  detections(detector, sample.images);
  EXPECT_EQ(scores(), before);
  detector.commit(detector_losses(detector, sample.images, sample.targets).state);
  EXPECT_NE(scores(), before);
}

// A few steps on one image: the loss falls to a fraction, and the object is found.
TEST(Detector, FindsWhatItWasTrainedOn) {
  at::manual_seed(3);
  const ImageModel detector = small_detector("retinanet", kPvt, at::kFloat);
  test::ImageBatch images{at::zeros({1, 3, 64, 64}), {{64, 64}}};
  images.pixels.slice(2, 16, 48).slice(3, 8, 40).fill_(1.0);
  const std::vector<heads::ObjectTargets> targets = {
      {at::tensor({8.f, 16.f, 40.f, 48.f}).view({1, 4}), at::tensor({1}, at::kLong), {}}};
  std::vector<at::Tensor> moments;
  for (const auto& [name, tensor] : detector.parameters().named()) moments.push_back(at::zeros_like(tensor).detach());
  double first = 0, last = 0;
  for (int step = 0; step < 120; ++step) {
    detector.parameters().zero_grad();
    const at::Tensor loss = detector_losses(detector, images, targets).sum();
    last = loss.item<double>();
    if (step == 0) first = last;
    loss.backward();
    const at::NoGradGuard no_grad;
    size_t i = 0;
    for (const auto& [name, tensor] : detector.parameters().named()) {
      const at::Tensor moment = moments[i++];
      if (!tensor.grad().defined()) continue;
      moment.mul_(0.9).addcmul_(tensor.grad(), tensor.grad(), 0.1);
      at::Tensor(tensor).addcdiv_(tensor.grad(), moment.sqrt().add_(1e-8), -3e-3);
    }
  }
  EXPECT_LT(last, 0.3 * first);
  const auto found = detections(detector, images);
  ASSERT_GT(found[0].boxes.size(0), 0);
  EXPECT_EQ(found[0].labels[0].item<int64_t>(), 1);
  EXPECT_GT(ops::box_iou(found[0].boxes.slice(0, 0, 1), targets[0].boxes).item<double>(), 0.7);
}

TEST(Detector, NeedsLevels) {
  const std::string vit = R"(
[backbone]
type = "vit"
image_size = [32, 32]
patch_size = 8
dim = 8
num_layers = 1
num_heads = 1
[head]
type = "retinanet"
num_classes = 3
)";
  test::expect_error<base::InputError>([&] { ImageModel(options_from(vit), 1, at::kFloat); },
                                       {"4 stages", "found 1", "patches of 8", "vit"});
}

}  // namespace
}  // namespace mnemo::models
