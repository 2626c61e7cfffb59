// torchvision's detectors at their full size: names, shapes and detections (tests/python/torchvision_detectors.py).
#include "weights/torchvision_detector.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchvision_numbers.h"

namespace mnemo::weights::torchvision_detector_test {
namespace {

using test::difference;
using test::expect_error;

const std::string kFolder = MNEMO_SOURCE_DIR "/tests/data/torchvision/";
constexpr const char* kArchitectures[] = {"retinanet_resnet50_fpn", "fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn"};

bool has(const std::string& name, std::string_view part) { return name.find(part) != std::string::npos; }

struct Stored {
  explicit Stored(const std::string& architecture) {
    const std::string path = kFolder + architecture + ".json";
    config = parse_model_config(base::read_file(path, 1 << 20), path);
    expected = read_safetensors(kFolder + architecture + ".safetensors");
    const auto sides = [](const base::Node& size) {
      return heads::PixelSize{size.items()[0].as_int(), size.items()[1].as_int()};
    };
    for (const base::Node& size : config.at("sizes").items()) images.sizes.push_back(sides(size));
    const auto [height, width] = sides(config.at("padded"));
    images.pixels = 3 * test::torchvision_uniform("pixels",
                                                  {static_cast<int64_t>(images.sizes.size()), 3, height, width}) -
                    1.5;
    for (size_t b = 0; b < images.sizes.size(); ++b) {
      const at::Tensor image = images.pixels[static_cast<int64_t>(b)];
      image.slice(1, images.sizes[b].first).zero_();
      image.slice(2, images.sizes[b].second).zero_();
    }
    for (const base::Node::Member& tensor : config.at("tensors").members()) {
      std::vector<int64_t> shape;
      for (const base::Node& size : tensor.value.items()) shape.push_back(size.as_int());
      file.tensors.emplace_back(tensor.key, test::torchvision_value(tensor.key, shape));
    }
  }
  /// The part that a user's config.json has.
  base::Node own_config() const {
    return base::Node::table({{"architecture", config.at("architecture")}, {"model_args", config.at("model_args")}});
  }

  base::Node config;
  TensorFile expected, file;
  models::DetectionImages images;
};

TEST(TorchvisionDetector, DetectsWhatTorchvisionDetects) {
  for (const char* architecture : kArchitectures) {
    SCOPED_TRACE(architecture);
    const Stored stored(architecture);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      models::Detector detector(torchvision_detector_options(stored.own_config()), 0, dtype);
      load_torchvision_tensors(stored.file, detector, "m");
      const double tolerance = dtype == at::kDouble ? 1e-6 : 1e-4;
      const auto found = detector.detect({stored.images.pixels.to(dtype), stored.images.sizes});
      for (size_t b = 0; b < found.size(); ++b) {
        const auto expected = [&](const char* key) { return stored.expected.at(fmt::format("{}.{}", key, b), "m"); };
        const int64_t shift = detector.options().type == models::DetectorType::retinanet ? 0 : 1;
        EXPECT_TRUE(at::equal(found[b].labels + shift, expected("labels")));
        // Boxes relative to the longer side of the image.
        const double side = static_cast<double>(stored.images.pixels.size(3));
        EXPECT_LT(difference(found[b].boxes.to(at::kDouble), expected("boxes")) / side, tolerance);
        EXPECT_LT(difference(found[b].scores.to(at::kDouble), expected("scores")), tolerance);
        if (detector.options().type == models::DetectorType::mask_rcnn) {
          EXPECT_LT(difference(found[b].masks.to(at::kFloat), expected("masks").squeeze(1)), 1e-4);
        }
      }
    }
  }
}

// Weights that torchvision published before it renamed its layers.
TEST(TorchvisionDetector, OlderNamesAreRead) {
  for (const char* architecture : kArchitectures) {
    SCOPED_TRACE(architecture);
    const Stored stored(architecture);
    TensorFile older = stored.file;
    int renamed = 0;
    for (auto& [name, tensor] : older.tensors) {
      const std::string today = name;
      const auto replace = [&](std::string_view from, const std::string& to) {
        if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
      };
      replace("rpn.head.conv.0.0", "rpn.head.conv");
      for (int k = 0; k < 4; ++k) {
        for (const char* block : {"inner_blocks", "layer_blocks"})
          replace(fmt::format("{}.{}.0", block, k), fmt::format("{}.{}", block, k));
        replace(fmt::format("mask_head.{}.0", k), fmt::format("mask_head.mask_fcn{}", k + 1));
      }
      for (const char* head : {"classification_head", "regression_head"}) {
        for (int k = 0; k < 4; ++k) {
          const std::string from = fmt::format("{}.conv.{}.0.", head, k);
          if (!has(today, from)) continue;
          name = today;
          replace(from, fmt::format("{}.conv.{}.", head, 2 * k));
        }
      }
      renamed += name == today ? 0 : 1;
    }
    EXPECT_GE(renamed, 14);
    models::Detector detector(torchvision_detector_options(stored.own_config())), twin(detector.options());
    load_torchvision_tensors(older, detector, "m");
    load_torchvision_tensors(stored.file, twin, "m");
    for (size_t i = 0; i < twin.parameters().all().size(); ++i)
      EXPECT_TRUE(at::equal(detector.parameters().all()[i].tensor, twin.parameters().all()[i].tensor));
  }
}

TEST(TorchvisionDetector, AFolderIsRead) {
  const test::TemporaryFolder folder;
  const std::string config = R"({"architecture": "retinanet_resnet50_fpn",
    "model_args": {"backbone_name": "resnet18", "num_classes": 3, "norm_eps": 0.0}})";
  base::write_file_atomic(folder / "config.json", config);
  const models::Detector own(torchvision_detector_options(parse_model_config(config, "m")), 5);
  const ForeignFormat format = torchvision_detector_format();
  const NamedModel named = named_model(format, own.parameters(), own.initial_state(1));
  NamedTensors theirs = to_theirs(format, named.tensors);
  for (auto& [name, tensor] : theirs) {
    if (name.starts_with("conv1") || name.starts_with("bn1") || name.starts_with("layer"))
      name.insert(0, "backbone.body.");
  }
  write_safetensors(folder / "model.safetensors", theirs);
  const models::Detector read = load_torchvision_detector(folder.path());
  for (size_t i = 0; i < own.parameters().all().size(); ++i)
    EXPECT_TRUE(at::equal(own.parameters().all()[i].tensor, read.parameters().all()[i].tensor));

  theirs.pop_back();
  write_safetensors(folder / "model.safetensors", theirs);
  expect_error<base::InputError>([&] { load_torchvision_detector(folder.path()); }, {"model.safetensors", "missing 1"});
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"architecture": "retinanet_resnet50_fpn_v2"})", "retinanet_resnet50_fpn_v2"},
           {R"({"architecture": "retinanet_resnet50_fpn", "model_args": {"box_nms_thresh": 0.5}})", "box_nms_thresh"},
           {R"({"architecture": "maskrcnn_resnet50_fpn", "model_args": {"backbone_name": "resnext50"}})", "resnext50"}})
    expect_error<base::InputError>([&] { torchvision_detector_options(parse_model_config(text, "m")); }, {part});
  EXPECT_TRUE(is_torchvision_detector(parse_model_config(config, "m")));
}

}  // namespace
}  // namespace mnemo::weights::torchvision_detector_test
