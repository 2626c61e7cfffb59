// torchvision's detectors at their full size: names, shapes and detections (tests/python/torchvision_detectors.py).
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/options.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/detector.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchvision_numbers.h"
#include "weights/foreign.h"

namespace mnemo::weights::torchvision_detector_test {
namespace {

using test::difference;
using test::expect_error;

const ForeignFormat& format() { return foreign_format("torchvision_detector"); }

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
  test::ImageBatch images;
};

models::ModelOptions options_of(const base::Node& config) {
  return models::read_model_options(format().options(config));
}

/// The model of a config.json with the weights of a file.
std::unique_ptr<models::ImageModel> loaded(const Stored& stored, const TensorFile& file, at::ScalarType dtype) {
  auto model = std::make_unique<models::ImageModel>(options_of(stored.own_config()), 0, dtype);
  const NamedModel named = named_model(format(), model->parameters(), model->initial_state(1));
  load_theirs(format(), file, named.tensors, "m");
  model->commit(named.state);
  return model;
}

TEST(TorchvisionDetector, DetectsWhatTorchvisionDetects) {
  for (const char* architecture : kArchitectures) {
    SCOPED_TRACE(architecture);
    const Stored stored(architecture);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const auto detector = loaded(stored, stored.file, dtype);
      const std::string head = detector->options().head.type();
      const double tolerance = dtype == at::kDouble ? 1e-6 : 1e-4;
      const auto found = test::detections(*detector, {stored.images.pixels.to(dtype), stored.images.sizes});
      for (size_t b = 0; b < found.size(); ++b) {
        const auto expected = [&](const char* key) { return stored.expected.at(fmt::format("{}.{}", key, b), "m"); };
        const int64_t shift = head == "retinanet" ? 0 : 1;
        EXPECT_TRUE(at::equal(found[b].labels + shift, expected("labels")));
        // Boxes relative to the longer side of the image.
        const double side = static_cast<double>(stored.images.pixels.size(3));
        EXPECT_LT(difference(found[b].boxes.to(at::kDouble), expected("boxes")) / side, tolerance);
        EXPECT_LT(difference(found[b].scores.to(at::kDouble), expected("scores")), tolerance);
        if (head == "mask_rcnn") {
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
    const auto detector = loaded(stored, older, at::kFloat), twin = loaded(stored, stored.file, at::kFloat);
    for (size_t i = 0; i < twin->parameters().all().size(); ++i)
      EXPECT_TRUE(at::equal(detector->parameters().all()[i].tensor, twin->parameters().all()[i].tensor));
  }
}

// Options survive the way to config.json and back; a classifier is refused by name.
TEST(TorchvisionDetector, OptionsGoThereAndBack) {
  for (const char* architecture : kArchitectures) {
    const std::string text = fmt::format(
        R"({{"architecture": "{}", "num_classes": 7, "model_args": {{"backbone_name": "resnet34", "norm_eps": 0.0}}}})",
        architecture);
    const models::ModelOptions options = options_of(parse_model_config(text, "m"));
    EXPECT_EQ(options.num_classes(), std::string_view(architecture).starts_with("retinanet") ? 7 : 6);
    const base::Node config = format().config(options);
    EXPECT_EQ(config.at("architecture").as_string(), architecture);
    EXPECT_EQ(config.at("model_args").at("num_classes").as_int(), 7);
    EXPECT_EQ(base::write_options(options_of(config)), base::write_options(options));
  }
  const auto classifier = models::read_model_options(base::parse_toml("preset = \"resnet18\"", "m"));
  expect_error<base::InputError>([&] { format().config(classifier); }, {"torchvision_detector", "classification"});
}

TEST(TorchvisionDetector, ItsInputIsTorchvisions) {
  const auto input = [](const char* arguments) {
    return format().detector->input(parse_model_config(
        fmt::format(R"({{"architecture": "retinanet_resnet50_fpn", "model_args": {}}})", arguments), "m"));
  };
  EXPECT_EQ(input("{}").at("shorter").as_int(), 800);
  EXPECT_EQ(input("{}").at("resize").as_string(), "torchvision");
  EXPECT_EQ(input(R"({"min_size": 320, "max_size": 640})").at("longest").as_int(), 640);
}

TEST(TorchvisionDetector, UnknownArchitecturesAndArgumentsAreNamed) {
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"architecture": "retinanet_resnet50_fpn", "model_args": {"box_nms_thresh": 0.5}})", "box_nms_thresh"},
           {R"({"architecture": "maskrcnn_resnet50_fpn", "model_args": {"backbone_name": "resnext50"}})", "resnext50"}})
    expect_error<base::InputError>([&] { options_of(parse_model_config(text, "m")); }, {part});
  expect_error<base::InputError>(
      [] { foreign_format_of(parse_model_config(R"({"architecture": "retinanet_resnet50_fpn_v2"})", "m")); },
      {"retinanet_resnet50_fpn_v2", "torchvision_detector"});
}

}  // namespace
}  // namespace mnemo::weights::torchvision_detector_test
