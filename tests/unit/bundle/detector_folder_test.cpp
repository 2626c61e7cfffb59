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

  // What the folder of ours says otherwise since is written.
  data::DetectionInput changed = input;
  changed.longest = 640;
  base::write_file_atomic(base::join_path(ours, data::DetectionInput::kFile), changed.text());
  convert(back);
  EXPECT_EQ(read_detection_input(again).text(), changed.text());
}

// What tells classes apart starts afresh where the classes are others; the rest is taken.
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
}

TEST(DetectorFolder, AFolderThatSaysNothingOfItsInputIsNamed) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "config.json", R"({"kind": "model"})");
  test::expect_error<base::InputError>([&] { read_detection_input(folder.path()); }, {"detection.json", "shorter"});
}

}  // namespace
}  // namespace mnemo::bundle
