// Folders of torchvision's detectors: read, converted, written back.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/convert.h"
#include "bundle/detection_input.h"
#include "bundle/model_folder.h"
#include "bundle/take_weights.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "weights/foreign.h"
#include "weights/model_tensors.h"

namespace mnemo::bundle {
namespace {

constexpr const char*
    kConfig = R"({"architecture": "fasterrcnn_resnet50_fpn", "label_names": ["__background__", "a", "b"],
  "model_args": {"backbone_name": "resnet18", "num_classes": 3, "norm_eps": 0.0, "min_size": 320, "box_score_thresh": 0.1}})";

/// A folder as its user writes it, with random weights.
void write_folder(const std::string& folder) {
  base::make_folders(folder);
  base::write_file_atomic(base::join_path(folder, "config.json"), kConfig);
  const weights::ForeignFormat& format = weights::foreign_format("torchvision_detector");
  const models::ImageModel model(models::read_model_options(format.options(weights::parse_model_config(kConfig, "m"))),
                                 5, at::kFloat);
  weights::write_safetensors(base::join_path(folder, "model.safetensors"),
                             weights::to_theirs(format, weights::model_tensors(model)));
}

void expect_equal_tensors(const core::Model& a, const core::Model& b) {
  const weights::NamedTensors ours = weights::model_tensors(a), theirs = weights::model_tensors(b);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i].second, theirs[i].second)) << ours[i].first;
}

TEST(DetectorFolder, IsReadConvertedAndWrittenBack) {
  const test::TemporaryFolder root;
  const std::string theirs = root / "theirs", ours = root / "ours", again = root / "again";
  write_folder(theirs);
  const Bundle read = read_bundle(theirs);
  EXPECT_EQ(read.options().head.table().at("score_thresh").as_double(), 0.1);
  EXPECT_EQ(class_names(theirs), (std::vector<std::string>{"a", "b"}));
  const data::DetectionInput input = read_detection_input(theirs);
  EXPECT_EQ(input.shorter, 320);
  EXPECT_EQ(input.longest, 1333);
  EXPECT_EQ(input.resize, data::DetectionResize::torchvision);

  ConvertOptions to_ours;
  to_ours.model = theirs;
  to_ours.to = "mnemo";
  to_ours.out = ours;
  convert(to_ours);
  EXPECT_TRUE(base::path_exists(base::join_path(ours, data::DetectionInput::kFile)));
  EXPECT_EQ(read_detection_input(ours).text(), input.text());
  EXPECT_EQ(class_names(ours), class_names(theirs));
  expect_equal_tensors(*read_bundle(ours).model, *read.model);

  ConvertOptions back;
  back.model = ours;
  back.to = "torchvision_detector";
  back.out = again;
  convert(back);
  EXPECT_EQ(read_model_config(again), kConfig);  // it says the same, so it stays as it was
  expect_equal_tensors(*read_bundle(again).model, *read.model);

  // A changed detection.json is written back.
  data::DetectionInput changed = input;
  changed.longest = 640;
  base::write_file_atomic(base::join_path(ours, data::DetectionInput::kFile), changed.text());
  convert(back);
  EXPECT_EQ(read_detection_input(again).text(), changed.text());
  // Its labels count the background.
  const base::Node config = weights::parse_model_config(read_model_config(again), "m");
  EXPECT_EQ(base::to_json(config.at("label_names"), -1), R"(["__background__","a","b"])");
  EXPECT_EQ(class_names(again), class_names(theirs));
  // The format resizes in one way.
  changed.resize = data::DetectionResize::pillow;
  base::write_file_atomic(base::join_path(ours, data::DetectionInput::kFile), changed.text());
  test::expect_error<base::InputError>([&] { convert(back); }, {"detection.json", "'resize'", "pillow"});
}

// A classifier's folder may hold a detection.json; a detector is refused as a classifier.
TEST(DetectorFolder, AFileOfADetectorDoesNotDisturbAClassifier) {
  const test::TemporaryFolder root;
  const std::string theirs = root / "theirs", ours = root / "ours";
  base::make_folders(theirs);
  const std::string config = R"({"architecture": "resnet18", "num_classes": 2})";
  base::write_file_atomic(base::join_path(theirs, "config.json"), config);
  base::write_file_atomic(base::join_path(theirs, data::DetectionInput::kFile), data::DetectionInput().text());
  const weights::ForeignFormat& format = weights::foreign_format("resnet");
  const models::ImageModel model(models::read_model_options(format.options(weights::parse_model_config(config, "m"))),
                                 5, at::kFloat);
  weights::write_safetensors(base::join_path(theirs, "model.safetensors"),
                             weights::to_theirs(format, weights::model_tensors(model)));
  ConvertOptions options;
  options.model = theirs;
  options.to = "resnet";
  options.out = ours;
  convert(options);
  EXPECT_EQ(read_model_config(ours), config);
  write_folder(root / "detector");
  test::expect_error<base::InputError>([&] { read_bundle(root / "detector").preprocessing(); },
                                       {"found a detector", "mnemo detect"});
}

// Layers with rows for classes start afresh where the classes differ; all others are taken.
TEST(DetectorFolder, StartsADetectorOfOtherClasses) {
  const test::TemporaryFolder root;
  const std::string theirs = root / "theirs";
  write_folder(theirs);
  const std::vector<std::string> of_classes = {"box_head.cls_score.weight", "box_head.cls_score.bias",
                                               "box_head.box_reg.weight", "box_head.box_reg.bias"};
  models::ModelOptions options = read_bundle(theirs).options();
  for (const std::vector<std::string>& classes : {std::vector<std::string>{"x", "y", "z"}, {"b", "a"}}) {
    options.head.set("num_classes", static_cast<int64_t>(classes.size()));
    models::ImageModel model(models::read_model_options(base::write_options(options)), 7, at::kFloat);
    EXPECT_EQ(take_weights(theirs, model, classes).fresh, of_classes);
    const std::string taken = "rpn.cls_logits.weight";
    EXPECT_TRUE(at::equal(model.parameters().find(taken), read_bundle(theirs).model->parameters().find(taken)));
  }
  // A pyramid of other levels has nothing but the backbone in common.
  base::Node other = base::write_options(options);
  other.set("head", base::Node::table({{"type", "retinanet"}, {"num_classes", 2}, {"convention", "torchvision"}}));
  models::ImageModel model(models::read_model_options(other), 7, at::kFloat);
  for (const std::string& name : take_weights(theirs, model).fresh)
    EXPECT_TRUE(name.starts_with("neck.") || name.starts_with("head.")) << name;
}

TEST(DetectorFolder, AFolderThatSaysNothingOfItsInputIsNamed) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "config.json", R"({"kind": "model"})");
  test::expect_error<base::InputError>([&] { read_detection_input(folder.path()); }, {"detection.json", "shorter"});
}

}  // namespace
}  // namespace mnemo::bundle
