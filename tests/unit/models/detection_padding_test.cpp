// Law: an image's detections do not depend on its company in the batch, whatever stands in the padding.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/options.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/detector.h"
#include "tests/support/numbers.h"

namespace mnemo::models::detection_padding_test {
namespace {

using test::detections;
using test::detector_losses;
using test::difference;
using test::ImageBatch;
using test::Numbers;

constexpr const char* kPyramid = R"(image_size = [64, 64]
dims = [8, 8, 16, 16]
depths = [1, 1, 1, 2]
num_heads = [1, 1, 2, 2]
mlp_ratios = [2, 2, 2, 2]
sr_ratios = [8, 4, 2, 1]
)";
constexpr const char* kSwin =
    "image_size = [64, 64]\ndim = 8\ndepths = [2, 2, 2, 2]\nnum_heads = [1, 1, 2, 2]\n"
    "window_size = [3, 3]\n";
constexpr const char* kVit = "image_size = [64, 64]\npatch_size = 16\ndim = 16\nnum_layers = 2\nnum_heads = 2\n";

struct Case {
  std::string type, keys, memory = {};
};

std::vector<Case> cases() {
  const std::string grc = "[[memory]]\ntype = \"grc\"\nattend = \"sample\"\n",
                    cache = "[[memory]]\ntype = \"attention_cache\"\n";
  std::vector<Case> all = {{"resnet", "dim = 4\ndepths = [1, 1, 1, 1]\n"},
                           {"resnet", "dim = 8\nblock = \"basic\"\ndepths = [1, 2, 1, 1]\n"}};
  const std::vector<std::pair<std::string, std::string>> backbones = {
      {"pvt", kPyramid}, {"pvt_v2", kPyramid}, {"pvt_v2", std::string(kPyramid) + "linear = true\n"}, {"vit", kVit}};
  for (const auto& [type, keys] : backbones) {
    for (const std::string& memory :
         {std::string(), grc, grc + "resample = \"grid\"\n", grc + "variant = \"authors\"\nposition = \"cpe\"\n",
          grc + "position = \"cpe_alone\"\n", grc + "eval_read = \"updated\"\n", cache})
      all.push_back({type, keys, memory});
  }
  for (const std::string& memory : {std::string(), grc, grc + "variant = \"authors\"\nposition = \"cpe\"\n"})
    all.push_back({"swin", kSwin, memory});
  return all;
}

constexpr const char* kTypes[] = {"retinanet", "mask_rcnn"};

std::unique_ptr<ImageModel> random_detector(const Case& of, const std::string& type, const std::string& more = {}) {
  const std::string own = type == "retinanet" ? "num_convs = 2\nscore_thresh = 0.2\n"
                                              : "hidden = 16\nmask_convs = 1\nscore_thresh = 0.0\n";
  const std::string text = fmt::format(
      "[backbone]\ntype = \"{}\"\n{}[head]\ntype = \"{}\"\nnum_classes = 3\nchannels = 8\n{}{}{}", of.type, of.keys,
      type, own, more, of.memory);
  auto detector = std::make_unique<ImageModel>(read_model_options(base::parse_toml(text, "model")), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(6);
  for (const auto& [name, tensor] : detector->parameters().named()) {
    // Small in the heads: saturated scores would be equal, and their order a matter of rounding.
    const bool backbone = name.starts_with("backbone") || name.starts_with("neck");
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * (tensor.dim() == 1 ? 0.4 : backbone ? 0.25 : 0.08));
  }
  // Caches and running statistics as a training leaves them.
  detector->commit(detector->initial_state(1).map([&](const core::Field& field, const at::Tensor& tensor) {
    if (!tensor.is_floating_point()) return at::full_like(tensor, 1 << 20);  // the attention-based cache: full
    return field.path.ends_with("var") ? numbers.normal(tensor.sizes()).abs() + 0.5 : numbers.normal(tensor.sizes());
  }));
  return detector;
}

/// The images in one batch of height x width, with garbage in the padding.
ImageBatch batch_of(const std::vector<at::Tensor>& images, int64_t height, int64_t width, uint64_t seed) {
  ImageBatch batch{Numbers(seed).normal({static_cast<int64_t>(images.size()), 3, height, width}) * 3, {}};
  for (size_t b = 0; b < images.size(); ++b) {
    const int64_t rows = images[b].size(1), columns = images[b].size(2);
    batch.pixels[static_cast<int64_t>(b)].slice(1, 0, rows).slice(2, 0, columns).copy_(images[b]);
    batch.sizes.emplace_back(rows, columns);
  }
  return batch;
}

void expect_same(const heads::Detections& a, const heads::Detections& b) {
  ASSERT_EQ(a.boxes.size(0), b.boxes.size(0));
  EXPECT_GT(a.boxes.size(0), 0);
  EXPECT_TRUE(at::equal(a.labels, b.labels));
  EXPECT_LT(difference(a.boxes, b.boxes), 1e-8);
  EXPECT_LT(difference(a.scores, b.scores), 1e-10);
  EXPECT_LT(difference(a.masks, b.masks), 1e-9);
}

TEST(DetectionPadding, DetectionsDoNotDependOnTheCompany) {
  Numbers numbers(5);
  const std::vector<at::Tensor> images = {numbers.normal({3, 70, 50}), numbers.normal({3, 96, 130}),
                                          numbers.normal({3, 33, 64})};
  for (const Case& each : cases()) {
    for (const std::string type : kTypes) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", each.type, each.keys, each.memory, type));
      const auto detector = random_detector(each, type);
      const auto together = detections(*detector, batch_of(images, 96, 130, 7));
      for (size_t b = 0; b < images.size(); ++b) {
        const auto alone = detections(*detector, batch_of({images[b]}, images[b].size(1), images[b].size(2), 8));
        expect_same(alone[0], together[b]);
      }
    }
  }
}

// Nor do losses, their gradients and what the caches keep.
TEST(DetectionPadding, NoLossAndNoCacheReadsIt) {
  Numbers numbers(5);
  const at::Tensor image = numbers.normal({3, 70, 50});
  const heads::DrawOrder first = [](int64_t, bool, int64_t count) { return at::arange(count, at::kLong); };
  for (const Case& each : cases()) {
    for (const std::string type : kTypes) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", each.type, each.keys, each.memory, type));
      const auto detector = random_detector(each, type);
      const auto trained = [&](int64_t height, int64_t width, std::vector<at::Tensor>& gradients) {
        at::Tensor masks = at::zeros({1, height, width}, at::kBool);
        masks.slice(1, 8, 60).slice(2, 10, 40).fill_(true);
        const heads::ObjectTargets target{at::tensor({10., 8., 40., 60.}, at::kDouble).view({1, 4}),
                                          at::tensor({2}, at::kLong), masks};
        detector->parameters().zero_grad();
        test::DetectorLosses losses = detector_losses(*detector, batch_of({image}, height, width, 7),
                                                      std::span(&target, 1), first);
        losses.sum().backward();
        for (const auto& [name, tensor] : detector->parameters().named())
          gradients.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::Tensor());
        return losses;
      };
      std::vector<at::Tensor> alone_gradients, padded_gradients;
      const test::DetectorLosses alone = trained(70, 50, alone_gradients), padded = trained(130, 96, padded_gradients);
      for (size_t i = 0; i < alone.parts.size(); ++i) {
        EXPECT_LT(difference(alone.parts[i].second, padded.parts[i].second), 1e-9) << alone.parts[i].first;
        EXPECT_GT(test::largest(alone.parts[i].second), 0) << alone.parts[i].first;
      }
      for (size_t i = 0; i < alone_gradients.size(); ++i)
        EXPECT_LT(difference(alone_gradients[i], padded_gradients[i]), 1e-7 * (1 + test::largest(alone_gradients[i])))
            << detector->parameters().all()[i].name;
      const auto kept = alone.state.fields(), other = padded.state.fields();
      ASSERT_EQ(kept.size(), other.size());
      for (size_t i = 0; i < kept.size(); ++i)
        EXPECT_LT(difference(kept[i].second, other[i].second), 1e-10) << kept[i].first.path;
    }
  }
}

// What mmdetection and torchvision do: padding is a part of the image.
TEST(DetectionPadding, IsSeenIfAskedFor) {
  const Case pvt{"pvt", kPyramid};
  const auto detector = random_detector(pvt, "retinanet", "convention = \"torchvision\"\n");
  const at::Tensor image = Numbers(5).normal({3, 64, 64});
  const auto scores = [&](uint64_t seed) {
    const heads::ObjectTargets none{at::zeros({0, 4}, at::kDouble), at::zeros({0}, at::kLong)};
    return detector_losses(*detector, batch_of({image}, 96, 64, seed), std::span(&none, 1)).sum().item<double>();
  };
  EXPECT_NE(scores(7), scores(8));
}

}  // namespace
}  // namespace mnemo::models::detection_padding_test
