// Pascal VOC, JSON lines and boxes that are odd: what is read, what is refused, and by which message.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "data/detection/box_lines.h"
#include "data/detection/odd_boxes.h"
#include "data/detection/voc.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::data {
namespace {

std::string voc_object(const std::string& name, const std::string& rest = "") {
  return fmt::format(
      "<object><name> {} </name><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>{}<bndbox><xmin>3</xmin>"
      "<ymin>2</ymin><xmax>5.5</xmax><ymax>4</ymax></bndbox></object>",
      name, rest);
}
std::string voc_text(const std::string& objects, const std::string& size = "<width>8</width><height>6</height>") {
  return fmt::format("<annotation><filename>a.jpg</filename><size>{}<depth>3</depth></size>{}</annotation>", size,
                     objects);
}

TEST(Voc, AFile) {
  const std::string text = voc_text(voc_object("cell") + voc_object("dot", "<difficult>1</difficult>"));
  const VocFile edges = parse_voc(text, "a.xml", VocCorners::edges);
  EXPECT_EQ(edges.height, 6);
  EXPECT_EQ(edges.width, 8);
  EXPECT_EQ(edges.file, "a.jpg");
  ASSERT_EQ(edges.objects.size(), 2U);
  EXPECT_EQ(edges.objects[0].name, "cell");
  EXPECT_EQ(edges.objects[0].box, (XywhBox{3, 2, 2.5, 2}));
  EXPECT_FALSE(edges.objects[0].difficult);
  EXPECT_TRUE(edges.objects[1].difficult);
  EXPECT_EQ(parse_voc(text, "a.xml", VocCorners::pixels).objects[0].box, (XywhBox{2, 1, 3.5, 3}));
}

TEST(Voc, ErrorsNameFileAndLine) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    const std::string message = test::expect_error<base::InputError>(
        [&] { parse_voc(text, "a.xml", VocCorners::edges); }, parts);
    EXPECT_EQ(message.find("a.xml"), 0U) << message;
  };
  refused("", {"broken XML"});
  refused("<annotation>\n<size>", {"a.xml:2", "broken XML"});
  refused("<html/>", {"a.xml:1", "expected <annotation>, found <html>"});
  refused("<!DOCTYPE a [<!ENTITY b 'c'>]><annotation/>", {"document type"});
  refused("<annotation/>", {"'size'", "found 0 x 0"});
  refused(voc_text("", "<width>8</width><height>nan</height>"), {"'annotation/size/height'"});
  refused(voc_text("", "<width>100000</width><height>100000</height>"), {"found 100000 x 100000"});
  refused(voc_text("", "<width>1e300</width><height>1</height>"), {"a.xml:1", "expected a size"});
  refused(voc_text("<object><name>x</name></object>"), {"a.xml:1", "<bndbox>"});
  refused(voc_text("<object><bndbox><xmin>1</xmin></bndbox></object>"), {"<name>"});
  refused(voc_text(voc_object(std::string(5000, 'x'))), {"at most 1024 bytes"});
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "<a>";
  refused("<annotation>" + deep, {"at most 256 deep"});
}

TEST(Voc, AFolder) {
  const test::TemporaryFolder folder;
  for (const char* part : {"Annotations", "JPEGImages", "ImageSets/Main"}) base::make_folders(folder / part);
  base::write_file_atomic(folder / "Annotations/a.xml", voc_text(voc_object("dot") + voc_object("cell")));
  base::write_file_atomic(folder / "Annotations/b.xml", voc_text(voc_object("dot")));
  for (const char* image : {"a.jpg", "b.png"})
    base::write_file_atomic(folder / ("JPEGImages/" + std::string(image)), "");
  base::write_file_atomic(folder / "ImageSets/Main/val.txt", "b  1\r\n\n");
  const CocoSet all = read_voc(folder.path(), "", VocCorners::edges);
  ASSERT_EQ(all.images.size(), 2U);
  EXPECT_EQ(all.categories[0].name, "cell");
  ASSERT_EQ(all.objects.size(), 3U);
  EXPECT_EQ(all.objects[0].category, 1);
  EXPECT_EQ(all.objects[2].image, 1);
  EXPECT_EQ(all.images[1].file, "JPEGImages/a.jpg");  // <filename>, which is there
  std::filesystem::remove(folder / "JPEGImages/a.jpg");
  const CocoSet valid = read_voc(folder.path(), "val", VocCorners::edges);
  ASSERT_EQ(valid.images.size(), 1U);
  EXPECT_EQ(valid.images[0].file, "JPEGImages/b.png");
  EXPECT_EQ(valid.categories.size(), 2U);
  test::expect_error<base::InputError>([&] { read_voc(folder.path(), "", VocCorners::edges); }, {"annotation 'a'"});
  base::write_file_atomic(folder / "ImageSets/Main/val.txt", "../b\n");
  test::expect_error<base::InputError>([&] { read_voc(folder.path(), "val", VocCorners::edges); }, {"val.txt", "../b"});
  base::write_file_atomic(folder / "ImageSets/Main/val.txt", "c\n");
  test::expect_error<base::InputError>([&] { read_voc(folder.path(), "val", VocCorners::edges); }, {"c.xml", "'val'"});
  test::expect_error<base::InputError>([&] { read_voc(folder.path(), "test", VocCorners::edges); },
                                       {"test.txt", "data.splits"});
}

TEST(BoxLines, AFolder) {
  const test::TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    base::write_file_atomic(folder / "metadata.jsonl", text);
    return read_box_lines(folder.path());
  };
  const std::string first =
      R"({"file_name": "x/a.jpg", "height": 4, "width": 5, "objects": {"bbox": [[0, 1, 2, 3]], "categories": [7]}})";
  const CocoSet set = read(
      first + "\n\n" +
      R"({"file_name": "b.jpg", "height": 4, "width": 5, "objects": {"bbox": [[1, 1, 1, 1], [0, 0, 2, 2]], "categories": [2, 7]}})");
  ASSERT_EQ(set.objects.size(), 3U);
  EXPECT_EQ(set.categories[0].id, 2);
  EXPECT_EQ(set.objects[0].category, 1);
  EXPECT_EQ(set.objects[2].image, 1);
  EXPECT_EQ(set.objects[0].box, (XywhBox{0, 1, 2, 3}));
  const CocoSet named = read(
      R"({"file_name": "b", "height": 4, "width": 5, "objects": {"bbox": [[1, 1, 1, 1], [0, 0, 2, 2]], "categories": ["b", "a"]}})");
  EXPECT_EQ(named.categories[0].name, "a");
  EXPECT_EQ(named.objects[0].category, 1);
  for (
      const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
          {first + "\n" + first, "metadata.jsonl:2: image \"x/a.jpg\" is listed twice"},
          {"[1]", "metadata.jsonl:1: expected a table"},
          {"{", "metadata.jsonl:1"},
          {R"({"file_name": "../a.jpg"})", "inside of the folder"},
          {R"({"file_name": "a/../../b"})", "inside of the folder"},
          {R"({"file_name": "/etc/x"})", "inside of the folder"},
          {R"({"file_name": "a.jpg"})", "a.jpg"},
          {R"({"file_name": "a", "height": 1000000, "width": 1000000})", "found 1000000 x 1000000"},
          {R"({"file_name": "a", "height": 1, "width": 1, "objects": {"bbox": [[0,0,1,1]], "categories": []}})",
           "of the same length"},
          {R"({"file_name": "a", "height": 1, "width": 1, "objects": {"bbox": [[0,0,1]], "categories": [1]}})",
           "found 3 numbers"},
          {R"({"file_name": "a", "height": 1, "width": 1, "objects": {"bbox": [[0,0,1,1],[0,0,1,1]], "categories": ["b",3]}})",
           "all integers, or all names, found 3 and \"b\""}}) {
    test::expect_error<base::InputError>([&, &text = text] { read(text); }, {part});
  }
}

CocoSet odd_set() {
  CocoSet set{
      .path = "f.json", .images = {{1, "a", 10, 20}, {2, "b", 10, 20}, {3, "c", 10, 20}}, .categories = {{1, "x"}}};
  const auto add = [&](int32_t image, XywhBox box, bool crowd = false) {
    set.objects.push_back({.id = static_cast<int64_t>(set.objects.size()), .image = image, .box = box, .crowd = crowd});
  };
  add(0, {0, 0, 20, 10});
  add(0, {5, 5, -1, 4});
  add(0, {5, 5, 4, 0});
  add(1, {30, 3, 4, 4});
  add(2, {-5, 2, 8, 100});
  add(1, {1, 1, 2, 2}, true);
  return set;
}

TEST(OddBoxes, AreCutAndCounted) {
  CocoSet set = odd_set();
  const BoxCounts counts = clean_boxes(set, OddBoxes::clip, true);
  EXPECT_EQ(counts.kept, 3);
  EXPECT_EQ(counts.clipped, 1);
  EXPECT_EQ(counts.empty, 2);
  EXPECT_EQ(counts.outside, 1);
  EXPECT_EQ(set.images.size(), 3U);
  EXPECT_EQ(set.objects[1].box, (XywhBox{0, 2, 3, 8}));
}

// float32 has no numbers between the sides of these boxes.
TEST(OddBoxes, ThinBoxesAreEmpty) {
  CocoSet set = odd_set();
  set.objects[0].box = {16.0000011, 5, 1.2e-6, 2};
  set.objects[1].box = {19.99999999, 5, 5, 2};
  set.objects[2].box = {0, 0, 1e-44, 2};
  const BoxCounts counts = clean_boxes(set, OddBoxes::clip, true);
  EXPECT_EQ(counts.kept, 2);
  EXPECT_EQ(counts.empty, 2);
  EXPECT_EQ(counts.outside, 2);
  set.objects[0].box = {16.0000011, 5, 1.2e-6, 2};
  test::expect_error<base::InputError>([&] { clean_boxes(set, OddBoxes::refuse, true); }, {"width 1.2e-06"});
}

TEST(OddBoxes, ImagesWithoutObjectsGo) {
  CocoSet set = odd_set();
  EXPECT_EQ(clean_boxes(set, OddBoxes::clip, false).images, 1);
  ASSERT_EQ(set.images.size(), 2U);
  EXPECT_EQ(set.images[1].file, "c");
  ASSERT_EQ(set.objects.size(), 2U);
  EXPECT_EQ(set.objects[1].image, 1);
}

TEST(OddBoxes, AreRefusedByName) {
  CocoSet set = odd_set();
  test::expect_error<base::InputError>([&] { clean_boxes(set, OddBoxes::refuse, true); },
                                       {"f.json: annotation 1", "image 1, 10 x 20", "width -1", "4 of 6 boxes"});
}

}  // namespace
}  // namespace mnemo::data
