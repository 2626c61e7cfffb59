// Pictures of detections: outlines of masks, labels.
#include "data/detection/detection_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>

#include "data/detection/jpeg_bytes.h"
#include "data/images/image_reader.h"

namespace mnemo::data {
namespace {

PixelBitmap bitmap(const std::vector<std::string>& rows) {
  PixelBitmap mask{static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size()), {}};
  for (const std::string& row : rows)
    for (const char c : row) mask.bytes.push_back(c == '#');
  return mask;
}

TEST(MaskOutline, FollowsTheEdgesOfPixels) {
  EXPECT_EQ(mask_outline(bitmap({"....", ".##.", ".##.", "...."}), 1, 0), "M1.0 1.0L3.0 1.0L3.0 3.0L1.0 3.0Z");
  EXPECT_EQ(mask_outline(bitmap({"#"}), 10, 0), "M0.0 0.0L10.0 0.0L10.0 10.0L0.0 10.0Z");
  EXPECT_EQ(mask_outline(bitmap({"..", ".."}), 1, 0), "");
}

TEST(MaskOutline, HolesAndPartsAreLinesOfTheirOwn) {
  const auto lines = [](const std::string& path) { return std::count(path.begin(), path.end(), 'Z'); };
  EXPECT_EQ(lines(mask_outline(bitmap({"###", "#.#", "###"}), 1, 0)), 2);
  EXPECT_EQ(lines(mask_outline(bitmap({"#.#"}), 1, 0)), 2);
}

TEST(MaskOutline, IsSmoothedByTheTolerance) {
  const PixelBitmap stairs = bitmap({"#...", "##..", "###.", "####"});
  const auto corners = [&](double tolerance) {
    const std::string path = mask_outline(stairs, 1, tolerance);
    return std::count(path.begin(), path.end(), 'L');
  };
  EXPECT_EQ(corners(0), 9);
  EXPECT_LE(corners(1.0), 3);
}

TEST(DetectionPicture, HasTheImageBoxesAndLabels) {
  Image image(60, 90);
  const PixelBitmap mask = bitmap({"#"});
  const std::vector<DrawnObject> objects = {
      {{10, 20, 50, 55}, "a <dog>", 0.876, 1, rle_encode(mask.bytes.data(), 1, 1)},
      {.box = {1, 2, 3, 4}, .is_truth = true}};
  const std::string svg = detection_svg(image, objects);
  EXPECT_NE(svg.find("width=\"90\" height=\"60\""), std::string::npos);
  EXPECT_NE(svg.find("a &lt;dog&gt; 88 %"), std::string::npos) << svg;
  EXPECT_NE(svg.find("x=\"10.0\" y=\"20.0\" width=\"40.0\" height=\"35.0\""), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos);
  const std::string small = detection_svg(image, objects, {.max_side = 45});
  EXPECT_NE(small.find("x=\"5.0\" y=\"10.0\" width=\"20.0\" height=\"17.5\""), std::string::npos);
  const std::string both = side_by_side({svg, small});
  EXPECT_NE(both.find("width=\"145\" height=\"60\""), std::string::npos) << both.substr(0, 200);
  EXPECT_EQ(side_by_side({}), "");
}

// Twenty objects of one place: each label is at its box or joined to it by a line, and covers no other label.
TEST(DetectionPicture, LabelsOfACrowdAreReadAndBelongToTheirBoxes) {
  std::vector<DrawnObject> objects;
  for (int i = 0; i < 20; ++i) {
    const double x = 150 + 9.0 * (i % 5), y = 150 + 9.0 * (i / 5);
    objects.push_back({{x, y, x + 30, y + 30}, "book", 0.9});
  }
  const std::string svg = detection_svg(Image(400, 400), objects);
  std::vector<CornerBox> labels;
  const std::regex rect(
      R"re(<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="2" fill="#e69f00" fill-opacity)re");
  for (std::sregex_iterator i(svg.begin(), svg.end(), rect), end; i != end; ++i) {
    const auto at = [&](size_t k) { return std::stod((*i)[k]); };
    labels.push_back({at(1), at(2), at(1) + at(3), at(2) + at(4)});
  }
  ASSERT_EQ(labels.size(), 20U);
  size_t far = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const CornerBox& own = labels[i];
    for (size_t k = 0; k < i; ++k) {
      const CornerBox& other = labels[k];
      EXPECT_FALSE(own[0] < other[2] - 0.2 && other[0] < own[2] - 0.2 && own[1] < other[3] - 0.2 &&
                   other[1] < own[3] - 0.2)
          << i << " on " << k;
    }
    const CornerBox& box = objects[i].box;
    far += own[0] > box[2] + 2 || box[0] > own[2] + 2 || own[1] > box[3] + 2 || box[1] > own[3] + 2;
  }
  size_t lines = 0;
  for (size_t at = svg.find("<line"); at != std::string::npos; at = svg.find("<line", at + 1)) ++lines;
  EXPECT_EQ(lines, far);
  EXPECT_GT(far, 0U);
}

TEST(JpegBytes, AreReadAsTheImage) {
  Image image(17, 23);
  for (int64_t y = 0; y < 17; ++y)
    for (int64_t x = 0; x < 23; ++x) image.at(y, x)[0] = static_cast<uint8_t>(10 * x), image.at(y, x)[1] = 90;
  const Image read = decode_image(jpeg_bytes(image, 95), "memory");
  ASSERT_EQ(read.height, 17);
  ASSERT_EQ(read.width, 23);
  double off = 0;
  for (size_t i = 0; i < read.bytes.size(); ++i) off += std::abs(int{read.bytes[i]} - int{image.bytes[i]});
  EXPECT_LT(off / static_cast<double>(read.bytes.size()), 8.0);
}

}  // namespace
}  // namespace mnemo::data
