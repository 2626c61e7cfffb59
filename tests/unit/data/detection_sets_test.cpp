// Parts, classes and odd annotations of a data set of objects.
#include "data/detection/detection_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/painted_objects.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {
namespace {

using test::expect_error;

class DetectionSetsTest : public testing::Test {
 protected:
  DetectionSetsTest() {
    test::paint_objects(folder_.path(), 9);
    options_.train = folder_ / "instances_painted.json";
  }
  void change(const std::string& from, const std::string& to) const {
    std::string text = base::read_file(options_.train);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    base::write_file_atomic(options_.train, text.replace(at, from.size(), to));
  }

  test::TemporaryFolder folder_;
  DetectionOptions options_;
};

TEST_F(DetectionSetsTest, RefusesSplitsOfAnotherFormat) {
  options_.splits = {"train"};
  expect_error<base::InputError>([&] { base::check_options(options_); }, {"'splits'", "format = \"voc\""});
  options_.format = DetectionOptions::Format::voc;
  base::check_options(options_);
}

TEST_F(DetectionSetsTest, FindsTheFolderOfTheImages) {
  const DetectionSets sets = load_detections(options_, true);
  EXPECT_EQ(sets.train->size(), 9);
  EXPECT_EQ(sets.train->folder(), folder_ / "painted");
  EXPECT_EQ(sets.classes, (std::vector<std::string>{"red", "blue"}));
  EXPECT_EQ(sets.valid, nullptr);
  EXPECT_TRUE(sets.notices.empty());
  EXPECT_EQ(sets.train->read(2).objects.size(), 3U);
  options_.image_folder = "elsewhere";
  expect_error<base::InputError>([&] { load_detections(options_, false); },
                                 {"instances_painted.json", "0.jpg", "elsewhere", "image_folder"});
}

TEST_F(DetectionSetsTest, ClassesAreFoundByName) {
  options_.classes = {"blue", "green", "red"};
  const DetectionSets sets = load_detections(options_, false);
  const CocoSet& set = sets.train->set();
  ASSERT_EQ(set.categories.size(), 3U);
  EXPECT_EQ(set.categories[0].id, 9);
  EXPECT_EQ(set.categories[1].name, "green");
  EXPECT_EQ(set.categories[1].id, 10) << "no id of the file";
  EXPECT_EQ(set.categories[2].id, 7);
  EXPECT_EQ(set.objects.front().category, 2) << "the first is red";
  ASSERT_EQ(sets.notices.size(), 1U);
  EXPECT_EQ(sets.notices[0], options_.train + ": no category is called \"green\", as a class is.");
  options_.classes = {"blue"};
  const DetectionSets blue = load_detections(options_, false);
  for (const CocoObject& object : blue.train->set().objects) EXPECT_EQ(object.category, 0);
  EXPECT_LT(blue.train->set().objects.size(), set.objects.size());
  options_.classes = {"green"};
  expect_error<base::InputError>([&] { load_detections(options_, false); }, {"green", "red"});
  options_.classes = {"red", "red"};
  expect_error<base::InputError>([&] { load_detections(options_, false); }, {"two categories", "red"});
  options_.classes = {"N/A", "red", "N/A"};  // as published models have it
  const DetectionSets published = load_detections(options_, false);
  EXPECT_EQ(published.classes.size(), 3U);
  EXPECT_EQ(published.train->set().objects.front().category, 1);
}

TEST_F(DetectionSetsTest, AFractionIsHeldOut) {
  options_.valid_fraction = 0.34;
  const DetectionSets sets = load_detections(options_, false);
  EXPECT_EQ(sets.train->size(), 6);
  ASSERT_NE(sets.valid, nullptr);
  EXPECT_EQ(sets.valid->size(), 3);
  std::vector<std::string> files;
  for (const auto& part : {sets.train, sets.valid})
    for (const CocoImage& image : part->set().images) files.push_back(image.file);
  std::sort(files.begin(), files.end());
  EXPECT_EQ(std::unique(files.begin(), files.end()) - files.begin(), 9);
}

TEST_F(DetectionSetsTest, OddBoxesAreCountedOrRefused) {
  change("\"bbox\":[2,4,14,24]", "\"bbox\":[-2,4,14,24]");
  const DetectionSets sets = load_detections(options_, false);
  ASSERT_EQ(sets.notices.size(), 1U);
  EXPECT_NE(sets.notices[0].find("1 object cut to the image."), std::string::npos) << sets.notices[0];
  options_.boxes = OddBoxes::refuse;
  expect_error<base::InputError>([&] { load_detections(options_, false); }, {"annotation 1", "x -2"});
}

TEST_F(DetectionSetsTest, TrainingImagesAreMeasuredAsAnnotated) {
  change("\"bbox\":[2,4,14,24]", "\"bbox\":[-2,4,14,24]");
  options_.valid = options_.train;
  const DetectionSets sets = load_detections(options_, false);
  EXPECT_EQ(sets.train->set().objects[0].box[0], 0);
  EXPECT_EQ(sets.valid->set().objects[0].box[0], -2);
}

TEST_F(DetectionSetsTest, MasksAreNeededWhereTheDetectorHasThem) {
  change(",\"segmentation\":[[2,4,16,4,16,28,2,28]]", "");
  EXPECT_EQ(load_detections(options_, false).train->size(), 9);
  expect_error<base::InputError>([&] { load_detections(options_, true); }, {"annotation 1", "segmentation"});
}

TEST_F(DetectionSetsTest, MeasuredCrowdsNeedMasks) {
  change("\"iscrowd\":0,\"segmentation\":[[2,4,16,4,16,28,2,28]]", "\"iscrowd\":1,\"segmentation\":[]");
  EXPECT_EQ(load_detections(options_, true).train->size(), 9) << "no crowd is trained on";
  options_.valid = options_.train;
  EXPECT_EQ(load_detections(options_, false).valid->size(), 9);
  expect_error<base::InputError>([&] { load_detections(options_, true); }, {"annotation 1", "crowds", "model.head"});
}

TEST_F(DetectionSetsTest, OutlinesAreCheckedBeforeTheTraining) {
  change("[[2,4,16,4,16,28,2,28]]", "[[2,4,1e9,4,16,28,2,28]]");
  EXPECT_EQ(load_detections(options_, false).train->size(), 9);
  expect_error<base::InputError>([&] { load_detections(options_, true); }, {"annotation 1", "coordinates"});
}

TEST_F(DetectionSetsTest, FormatsAreRecognised) {
  EXPECT_EQ(detection_format(options_.train), DetectionOptions::Format::coco);
  EXPECT_FALSE(detection_format(folder_.path()));
  EXPECT_FALSE(detection_format(folder_ / "nothing.json"));
  base::write_file_atomic(folder_ / "metadata.jsonl", "{\"file_name\": \"a.jpg\", \"text\": \"a\"}\n");
  EXPECT_FALSE(detection_format(folder_.path())) << "captions";
  base::write_file_atomic(folder_ / "metadata.jsonl",
                          "{\"file_name\": \"a.jpg\", \"objects\": {\"bbox\": [], \"categories\": []}}\n");
  EXPECT_EQ(detection_format(folder_.path()), DetectionOptions::Format::lines);
}

// A folder in the layout of COCO has its annotations in a folder; VOC says its parts in lists, or has none.
TEST(FindDetections, KnowsFoldersByTheirLayout) {
  const test::TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    base::write_file_atomic(folder / name, text);
    return folder / name;
  };
  const std::string set = "{\"images\": [], \"annotations\": [], \"categories\": []}";
  EXPECT_FALSE(find_detections(folder.path()));
  const std::string valid = file("annotations/instances_val2017.json", set);
  EXPECT_EQ(find_detections(folder.path())->train, valid) << "the only one";
  const std::string train = file("annotations/instances_train2017.json", set);
  file("annotations/person_keypoints_train2017.json", set);
  const DetectionOptions coco = *find_detections(folder.path());
  EXPECT_EQ(std::tie(coco.train, coco.valid), std::tie(train, valid));
  EXPECT_EQ(coco.format, DetectionOptions::Format::coco);

  file("voc/Annotations/a.xml", "");
  file("voc/JPEGImages/a.jpg", "");
  const DetectionOptions plain = *find_detections(folder / "voc");
  EXPECT_EQ(plain.format, DetectionOptions::Format::voc);
  EXPECT_TRUE(plain.splits.empty() && plain.valid.empty());
  file("voc/ImageSets/Main/train.txt", "a\n");
  file("voc/ImageSets/Main/val.txt", "a\n");
  const DetectionOptions split = *find_detections(folder / "voc");
  EXPECT_EQ(split.splits, (std::vector<std::string>{"train", "val"}));
  EXPECT_EQ(split.valid, folder / "voc");
}

TEST(SpreadNumbers, AreEvenAndAllThereAre) {
  EXPECT_EQ(spread_numbers(10, 4), (std::vector<int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(spread_numbers(3, 8), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace mnemo::data
