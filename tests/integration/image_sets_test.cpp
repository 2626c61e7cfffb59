#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/file_io.h"
#include "base/node.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"

// Image data sets through the program itself: described, trained on, resumed, evaluated.
namespace mnemo::image_sets {
namespace {

class ImageSets : public testing::Test {
 protected:
  struct Result {
    int status = -1;
    std::string out, err;
  };

  ImageSets() {
    data::make_class_folders(folder_ / "set/train", 8);
    data::make_class_folders(folder_ / "set/val", 2);
    base::write_file_atomic(folder_ / "recipe.toml", R"(
[data]
type = "images"
train = "set/train"
valid = "set/val"
augment = { randaugment = { num_ops = 2 }, mixup = 0.8, cutmix = 1.0, erase = 0.3, label_smoothing = 0.1, repeats = 2 }
[model]
head = { type = "classification", pool = "cls" }
memory = [{ type = "grc" }]
[model.backbone]
type = "vit"
image_size = [16, 16]
patch_size = 8
dim = 16
num_layers = 1
num_heads = 2
[train]
steps = 6
batch_size = 5
shuffle = true
threads = 1
log_every = 2
eval_every = 3
save_every = 3
ema_decay = 0.9
)");
  }

  Result run(const std::vector<std::string>& arguments) {
    std::string command = MNEMO_EXECUTABLE;
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    const int status = std::system(
        (command + " >'" + (folder_ / "out.txt") + "' 2>'" + (folder_ / "err.txt") + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, base::read_file(folder_ / "out.txt"),
            base::read_file(folder_ / "err.txt")};
  }
  std::string train(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"train", folder_ / "recipe.toml", "--out", folder_ / name, "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return base::sha256_file(folder_ / (name + "/model/model.safetensors"));
  }

  test::TemporaryFolder folder_;
};

TEST_F(ImageSets, TrainingIsTheSameWithAnyNumberOfWorkersAndWhenItIsResumed) {
  const std::string whole = train("whole");
  EXPECT_EQ(train("workers", {"--set", "data.workers=3"}), whole);
  // Up to step 3, then resumed with another number of workers.
  EXPECT_EQ(run({"train", folder_ / "recipe.toml", "--out", folder_ / "parts", "-q"}).status, 0);
  std::filesystem::remove_all(folder_ / "parts/step-00000006");
  std::filesystem::remove_all(folder_ / "parts/model");
  EXPECT_EQ(run({"train", "--resume", folder_ / "parts", "-q", "--set", "data.workers=2"}).status, 0);
  EXPECT_EQ(base::sha256_file(folder_ / "parts/model/model.safetensors"), whole);
  EXPECT_EQ(base::read_file(folder_ / "whole/model/classes.txt"), "ant\nbee\ncat\n");

  const Result measured = run({"eval", folder_ / "whole", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node node = base::parse_json(measured.out, "output");
  EXPECT_EQ(node.at("predictions").as_int(), 6);
  EXPECT_FALSE(node.contains("top5_accuracy")) << "of three classes";
}

TEST_F(ImageSets, ABrokenImageIsAnErrorWithItsPathOrLeftOut) {
  base::write_file_atomic(folder_ / "set/val/bee/broken.jpg", "no image");
  const Result stopped = run({"train", folder_ / "recipe.toml", "--out", folder_ / "run", "-q"});
  EXPECT_EQ(stopped.status, 2);
  EXPECT_NE(stopped.err.find(folder_ / "set/val/bee/broken.jpg"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("data.broken = \"skip\" leaves unreadable images out"), std::string::npos) << stopped.err;
  train("skipping", {"--set", "data.broken=skip"});
  const Result measured = run({"eval", folder_ / "skipping", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node node = base::parse_json(measured.out, "output");
  EXPECT_EQ(node.at("predictions").as_int(), 6);
  EXPECT_EQ(node.at("skipped").as_double(), 1.0);
  const Result given = run({"eval", folder_ / "skipping", "--data", folder_ / "set/val", "--json"});
  ASSERT_EQ(given.status, 0) << given.err;
  EXPECT_EQ(base::parse_json(given.out, "output").at("skipped").as_double(), 1.0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "set/val"))
    if (entry.is_regular_file()) base::write_file_atomic(entry.path().string(), "no image");
  const Result none = run({"eval", folder_ / "skipping"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("none of the 7 images can be read"), std::string::npos) << none.err;
}

// A part that is drawn from the training images is drawn from those that there are now.
TEST_F(ImageSets, ADrawnPartOfChangedImagesIsNotHeldOut) {
  train("run", {"--set", "data.valid=", "--set", "data.valid_fraction=0.25"});
  const Result before = run({"eval", folder_ / "run"});
  ASSERT_EQ(before.status, 0) << before.err;
  EXPECT_EQ(before.err.find("have changed"), std::string::npos) << before.err;
  std::filesystem::remove(std::filesystem::directory_iterator(folder_ / "set/train/bee")->path());
  const Result after = run({"eval", folder_ / "run"});
  EXPECT_EQ(after.status, 0);
  const std::string changed = "the training data have changed since the run";
  EXPECT_NE(after.err.find(changed), std::string::npos) << after.err;
  EXPECT_EQ(run({"eval", folder_ / "run", "--part", "train"}).err.find(changed), std::string::npos);
  base::write_file_atomic(folder_ / "run/step-00000006/data.safetensors", "damaged");
  EXPECT_EQ(run({"eval", folder_ / "run"}).status, 0);
  // A part of its own stays as it is.
  train("own", {"--set", "data.valid_fraction=0"});
  std::filesystem::remove(std::filesystem::directory_iterator(folder_ / "set/train/ant")->path());
  EXPECT_EQ(run({"eval", folder_ / "own"}).err.find(changed), std::string::npos);
}

TEST_F(ImageSets, ClassesHaveNamesOfOneLine) {
  for (const char* part : {"set/train/", "set/val/"})
    std::filesystem::rename(folder_ / (part + std::string("bee")), folder_ / (part + std::string("b\nee")));
  const Result refused = run({"train", folder_ / "recipe.toml", "--out", folder_ / "run", "-q"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("expected a name of one line"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(ImageSets, FoldersAreDescribedCheckedAndPrepared) {
  const Result shown = run({"data", folder_ / "set", "--json"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const base::Node node = base::parse_json(shown.out, "output");
  EXPECT_EQ(node.at("classes").size(), 3u);
  EXPECT_EQ(node.at("parts").items().at(0).at("images").as_int(), 24);
  EXPECT_EQ(node.at("parts").items().at(1).at("most_of_a_class").as_int(), 2);
  EXPECT_EQ(node.at("parts").items().at(0).at("max_width").as_int(), 96);
  EXPECT_EQ(run({"data", folder_ / "set", "--check"}).status, 0);
  std::filesystem::create_directories(folder_ / "out");
  EXPECT_EQ(run({"data", "prepare", "images", folder_ / "set", "--out", folder_ / "out"}).status, 0);
  EXPECT_EQ(run({"data", folder_ / "out/data.toml"}).status, 0);
  base::write_file_atomic(folder_ / "set/train/bee/broken.jpg", "no image");
  const Result checked = run({"data", folder_ / "set", "--check"});
  EXPECT_EQ(checked.status, 1);
  EXPECT_NE(checked.out.find("broken.jpg: expected a JPEG or PNG image"), std::string::npos) << checked.out;
}

TEST_F(ImageSets, WhatDoesNotFitIsSaid) {
  const Result tokens = run(
      {"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--set", "model.backbone={type=\"encoder\"}"});
  EXPECT_EQ(tokens.status, 2);
  EXPECT_NE(tokens.err.find("needs a model of images"), std::string::npos) << tokens.err;
  const Result classes = run(
      {"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--set", "model.head.num_classes=7"});
  EXPECT_EQ(classes.status, 2);
  EXPECT_NE(classes.err.find("expected 0 or the data's 3, found 7"), std::string::npos) << classes.err;
}

}  // namespace
}  // namespace mnemo::image_sets
