// COCO annotations and results: what is read, what is refused, and by which message.
#include "data/detection/coco.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {
namespace {

constexpr const char* kImages = R"("images": [{"id": 70, "file_name": "b.jpg", "height": 4, "width": 5},
                                              {"id": 7, "file_name": "a.jpg", "height": 3, "width": 6, "extra": [{}]}])";
constexpr const char* kCategories = R"("categories": [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}])";

std::string annotations_file(const std::string& annotations) {
  return fmt::format(R"({{"info": {{"annotations": [1, {{"id": null}}]}}, "annotations": [{}], {}, {}}})", annotations,
                     kImages, kCategories);
}
std::string annotation(const std::string& rest, int64_t id = 5) {
  return fmt::format(R"({{"id": {}, "image_id": 70, "category_id": 9, "bbox": [1, 1, 2.5, 2]{}}})", id, rest);
}

TEST(CocoSet, ListsAreInTheOrderOfTheirIds) {
  const CocoSet set = parse_coco(
      annotations_file(
          annotation("") + ", " +
          annotation(R"(, "area": 3, "iscrowd": 1, "segmentation": {"size": [4, 5], "counts": [6, 14]})", 6) + ", " +
          annotation(R"(, "segmentation": [[1, 1, 3, 1, 3, 3, 1, 3]])", 8)),
      "f.json");
  ASSERT_EQ(set.images.size(), 2U);
  EXPECT_EQ(set.images[0].file, "a.jpg");
  EXPECT_EQ(set.categories[1].name, "dog");
  ASSERT_EQ(set.objects.size(), 3U);
  EXPECT_EQ(set.objects[0].image, 1);
  EXPECT_EQ(set.objects[0].category, 1);
  EXPECT_EQ(set.objects[0].area, 5.0);
  EXPECT_FALSE(set.objects[0].crowd);
  EXPECT_TRUE(set.objects[1].crowd);
  EXPECT_EQ(set.objects[1].area, 3.0);
  EXPECT_EQ(rle_area(set.mask(set.objects[1])), 14);
  EXPECT_EQ(rle_area(set.mask(set.objects[2])), 4);
  test::expect_error<base::InputError>([&] { set.mask(set.objects[0]); }, {"f.json: annotation 5", "segmentation"});
}

TEST(CocoSet, OtherFilesAreToldWhatIsExpected) {
  const test::TemporaryFolder folder;
  const std::string prose = folder / "prose.txt";
  base::write_file_atomic(prose, "Once upon a time");
  test::expect_error<base::InputError>([&] { read_coco(prose); }, {"prose.txt: holds no JSON object", "annotations"});
  test::expect_error<base::InputError>([&] { read_coco(folder.path()); }, {"is a folder", "\"voc\"", "\"lines\""});
}

TEST(CocoSet, ErrorsNameFileAndElement) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    const std::string message = test::expect_error<base::InputError>([&] { parse_coco(text, "f.json"); }, parts);
    EXPECT_EQ(message.find("f.json"), 0U) << message;
  };
  const auto one = [&](const std::string& object, std::initializer_list<std::string> parts) {
    refused(annotations_file(object), parts);
  };
  refused("[]", {"expected a table"});
  refused("3", {"expected a table"});
  refused("{", {"byte"});
  refused("{}", {"expected the key 'images'"});
  refused(R"({"images": {}})", {"'images': expected a list, found table"});
  refused(R"({"images": 3})", {"'images': expected a list"});
  refused(R"({"images": [3]})", {"images[0]: expected a table, found integer 3"});
  refused(R"({"images": [[]]})", {"images[0]: expected a table"});
  refused(R"({"images": [], "images": []})", {"duplicate key 'images'"});
  one(annotation(R"(, "area": NaN)"), {"annotations[0]", "byte"});
  one(annotation(R"(, "id": 4)"), {"annotations[0]", "duplicate key 'id'"});
  one(annotation("") + "," + annotation(""), {"annotation 5", "twice"});
  one(R"({"id": 1, "image_id": 8, "category_id": 9, "bbox": [0, 0, 1, 1]})", {"annotation 1", "'image_id': 8"});
  one(R"({"id": 1, "image_id": 7, "category_id": 2, "bbox": [0, 0, 1, 1]})", {"annotation 1", "'category_id': 2"});
  one(R"({"id": 1, "image_id": 7, "bbox": [0, 0, 1, 1]})", {"annotations[0]", "'category_id'"});
  one(R"({"id": 1, "image_id": "7", "category_id": 9, "bbox": [0, 0, 1, 1]})", {"'image_id': expected an integer"});
  one(R"({"id": 1, "image_id": 7, "category_id": 9, "bbox": [0, 0, 1]})", {"'bbox'", "found 3 numbers"});
  one(R"({"id": 99999999999999999999, "image_id": 7})", {"annotations[0]", "does not fit in 64 bits"});
  one(annotation(R"(, "area": 1e999)"), {"annotations[0] (id 5): byte", ": number overflow"});
  one(annotation(R"(, "segmentation": [[1, 2, 3, 4]])"), {"annotations[0] (id 5)", "at least three points"});
  one(annotation(R"(, "segmentation": "x")"), {"'segmentation': expected {size, counts}"});
  one(annotation(R"(, "segmentation": {"size": [1e6, 1e6], "counts": "0"})"), {"annotations[0]", "expected a mask of"});
  one(annotation(R"(, "segmentation": {"size": [5, 4], "counts": [20]})"),
      {"annotation 5", "of image 70, 4 x 5, found 5 x 4"});
  one(annotation(R"(, "segmentation": {"size": [4, 5], "counts": [9223372036854775807, 5]})"), {"a run of"});
  refused(
      R"({"annotations": [], "categories": [], "images": [{"id": 1, "file_name": "", "height": 1000000000, "width": 1000000000}]})",
      {"image 1", "pixels"});
  refused(R"({"annotations": [], "categories": [{"id": 2, "name": "a"}, {"id": 2, "name": "b"}], "images": []})",
          {"category 2", "twice"});
}

// Elements are bounded each: many points, deep nesting, many keys.
TEST(CocoSet, LargeElementsAreRefused) {
  std::string points = "1";
  for (int i = 0; i < (1 << 18); ++i) points += ",1";
  test::expect_error<base::InputError>(
      [&] { parse_coco(annotations_file(annotation(", \"segmentation\": [[" + points + "]]")), "f.json"); },
      {"f.json: annotations[0] (id 5): more than 262144 values"});
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  test::expect_error<base::InputError>(
      [&] { parse_coco(annotations_file(annotation(", \"segmentation\": " + deep)), "f.json"); },
      {"annotations[0] (id 5): nested deeper"});
  std::string keys;
  for (int i = 0; i < 300; ++i) keys += fmt::format(", \"k{}\": 1", i);
  test::expect_error<base::InputError>([&] { parse_coco(annotations_file(annotation(keys)), "f.json"); },
                                       {"annotations[0] (id 5): a table of more than 256 keys"});
  EXPECT_EQ(parse_coco(R"({"x": )" + deep + "," + annotations_file("").substr(1), "f.json").objects.size(), 0U);
}

TEST(CocoSet, AnImageHasSoManyObjects) {
  std::string all;
  for (int64_t i = 0; i <= kMaxObjectsOfImage; ++i) {
    if (i > 0) all += ",";
    all += fmt::format(R"({{"id":{},"image_id":7,"category_id":3,"bbox":[0,0,1,1]}})", i);
  }
  // The rest is not read.
  test::expect_error<base::InputError>([&] { parse_coco(annotations_file(all + ",3"), "f.json"); },
                                       {"f.json: annotations[65536] (id 65536): image 7 has more than 65536"});
}

TEST(CocoResults, AreReadAsTheyAreWritten) {
  const CocoSet set = parse_coco(annotations_file(annotation("")), "f.json");
  const std::vector<CocoDetection> detections = {
      {.image = 0, .category = 1, .box = {0.1, 1.0 / 3, 2, 1e-17}, .score = 1.0 / 7},
      {.image = 1, .category = 0, .box = {0, 0, 1, 1}, .score = 0.5, .mask = rle_of_box({1, 1, 2, 2}, 4, 5, "m")}};
  const auto boxes = parse_coco_results(coco_results(detections, set, CocoParts::boxes), "r.json", set,
                                        CocoParts::boxes);
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_EQ(boxes[0].box, detections[0].box);
  EXPECT_EQ(boxes[0].score, detections[0].score);
  EXPECT_EQ(boxes[1].image, 1);
  EXPECT_EQ(boxes[1].category, 0);
  const auto masks = parse_coco_results(coco_results(std::span(detections).last(1), set, CocoParts::masks), "r.json",
                                        set, CocoParts::masks);
  EXPECT_EQ(masks[0].mask, detections[1].mask);
  EXPECT_EQ(masks[0].box, (XywhBox{1, 1, 2, 2}));
  EXPECT_TRUE(parse_coco_results(coco_results({}, set, CocoParts::boxes), "r.json", set, CocoParts::boxes).empty());
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "r.json: expected a list"},
           {R"([{"image_id": 1}])", "r.json: [0]: 'image_id': 1"},
           {R"([{"image_id": 7, "category_id": 3, "bbox": [0,0,1,1]}])", "expected the key 'score'"},
           {R"([{"image_id": 7, "category_id": 3, "score": 1, "segmentation": []}])", "'segmentation'"}}) {
    const CocoParts parts = text.find("seg") == std::string::npos ? CocoParts::boxes : CocoParts::masks;
    test::expect_error<base::InputError>([&, &text = text] { parse_coco_results(text, "r.json", set, parts); }, {part});
  }
}

}  // namespace
}  // namespace mnemo::data
