// Boxes and masks follow the pixels of their image: the red channel of each image is its mask.
#include "data/detection/annotated_image.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

/// The tight box around a mask.
CornerBox tight_box(const PixelBitmap& mask) {
  const XywhBox box = rle_box(rle_encode(mask.bytes.data(), mask.height, mask.width));
  return {box[0], box[1], box[0] + box[2], box[1] + box[3]};
}

/// An image whose red channel is the mask of its one object, a random blot in a random rectangle.
AnnotatedImage painted(int64_t height, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  AnnotatedImage out{Image(height, width), {}};
  PixelBitmap mask{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width))};
  const int64_t top = below(height), left = below(width), rows = 1 + below(height - top),
                columns = 1 + below(width - left);
  for (int64_t y = top; y < top + rows; ++y) {
    for (int64_t x = left; x < left + columns; ++x) mask.bytes[static_cast<size_t>(y * width + x)] = random() % 3 > 0;
  }
  mask.bytes[static_cast<size_t>(top * width + left)] = 1;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      out.image.at(y, x)[0] = mask.bytes[static_cast<size_t>(y * width + x)];
      out.image.at(y, x)[1] = static_cast<uint8_t>(random());
    }
  }
  out.objects.push_back({tight_box(mask), 3, false, mask});
  return out;
}

void expect_follows(const AnnotatedImage& image) {
  ASSERT_EQ(image.objects.size(), 1U);
  const PixelBitmap& mask = image.objects[0].mask;
  ASSERT_EQ(mask.height, image.image.height);
  ASSERT_EQ(mask.width, image.image.width);
  for (int64_t y = 0; y < mask.height; ++y) {
    for (int64_t x = 0; x < mask.width; ++x)
      ASSERT_EQ(mask.bytes[static_cast<size_t>(y * mask.width + x)], image.image.at(y, x)[0]) << y << ", " << x;
  }
  EXPECT_EQ(image.objects[0].box, tight_box(mask));
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1}, {1, 6}, {5, 1}, {7, 4}, {12, 17}};

TEST(AnnotatedImage, IsTurnedAsItsImage) {
  for (const auto& [height, width] : kShapes) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      for (int orientation = 0; orientation <= 9; ++orientation) {
        AnnotatedImage image = painted(height, width, seed);
        orient(image.objects[0], orientation, height, width);
        image.image = oriented(std::move(image.image), orientation);
        SCOPED_TRACE(fmt::format("{} x {}, orientation {}", height, width, orientation));
        expect_follows(image);
      }
    }
  }
}

TEST(AnnotatedImage, IsMirrored) {
  for (const auto& [height, width] : kShapes) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const AnnotatedImage before = painted(height, width, seed);
      AnnotatedImage image = before;
      mirror(image);
      expect_follows(image);
      mirror(image);
      EXPECT_EQ(image.image, before.image);
      EXPECT_EQ(image.objects[0].mask, before.objects[0].mask);
      EXPECT_EQ(image.objects[0].box, before.objects[0].box);
    }
  }
}

// Whole multiples: every pixel becomes a block. Other sizes: the mask's box is the scaled box to a pixel.
TEST(AnnotatedImage, IsResized) {
  for (const auto& [height, width] : kShapes) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const AnnotatedImage before = painted(height, width, seed);
      const AnnotatedImage large = resized(before, height * 3, width * 2, Interpolation::bilinear);
      EXPECT_EQ(large.image.height, height * 3);
      EXPECT_EQ(large.objects[0].box, tight_box(large.objects[0].mask));
      EXPECT_EQ(std::count(large.objects[0].mask.bytes.begin(), large.objects[0].mask.bytes.end(), 1),
                6 * std::count(before.objects[0].mask.bytes.begin(), before.objects[0].mask.bytes.end(), 1));
      const AnnotatedImage other = resized(before, height + 2, width + 3, Interpolation::bilinear);
      const CornerBox box = tight_box(other.objects[0].mask);
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(other.objects[0].box[i], box[i], 1.0);
    }
  }
}

TEST(AnnotatedImage, IsCropped) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    AnnotatedImage image = painted(12, 17, seed);
    // A whole rectangle, so that what is left of its box is tight.
    AnnotatedObject& object = image.objects[0];
    for (int64_t y = 0; y < 12; ++y) {
      for (int64_t x = 0; x < 17; ++x) {
        const auto px = static_cast<double>(x), py = static_cast<double>(y);
        const bool inside = px >= object.box[0] && px < object.box[2] && py >= object.box[1] && py < object.box[3];
        object.mask.bytes[static_cast<size_t>(y * 17 + x)] = image.image.at(y, x)[0] = inside ? 1 : 0;
      }
    }
    for (const ImageBox& part : {ImageBox{2, 3, 5, 9}, ImageBox{-4, -2, 9, 8}, ImageBox{6, 9, 20, 20}}) {
      const AnnotatedImage out = cropped(image, part, {0, 7, 9});
      const bool left = std::any_of(out.image.bytes.begin(), out.image.bytes.end(), [](uint8_t v) { return v == 1; });
      if (out.objects.empty()) {
        for (int64_t y = 0; y < part.height; ++y) {
          for (int64_t x = 0; x < part.width; ++x) ASSERT_EQ(out.image.at(y, x)[0], 0) << left;
        }
        continue;
      }
      expect_follows(out);
    }
  }
}

TEST(AnnotatedImage, SizesByTheShorterSide) {
  EXPECT_EQ(short_side_size(480, 640, 800, 1333), (std::pair<int64_t, int64_t>(800, 1067)));
  EXPECT_EQ(short_side_size(640, 480, 800, 1333), (std::pair<int64_t, int64_t>(1067, 800)));
  EXPECT_EQ(short_side_size(480, 1000, 800, 1333), (std::pair<int64_t, int64_t>(640, 1333)));
  EXPECT_EQ(short_side_size(1, 100'000, 800, 1333), (std::pair<int64_t, int64_t>(1, 1333)));
  // torchvision rounds down, and 322 * (800 / 322) is less than 800
  EXPECT_EQ(short_side_size(322, 400, 800, 1333, DetectionResize::torchvision),
            (std::pair<int64_t, int64_t>(799, 993)));
  EXPECT_EQ(short_side_size(480, 640, 800, 1333, DetectionResize::torchvision).second, 1066);
}

TEST(AnnotatedImage, HasTheAnnotatedSize) {
  const CocoSet set = parse_coco(R"({"images": [{"id": 4, "file_name": "a.jpg", "height": 3, "width": 5}],
    "categories": [{"id": 1, "name": "x"}], "annotations": [{"id": 1, "image_id": 4, "category_id": 1, "iscrowd": 1,
    "bbox": [0, 1, 2, 2], "segmentation": {"size": [3, 5], "counts": [1, 2, 12]}}]})",
                                 "f.json");
  const AnnotatedImage turned = annotate(Image(5, 3), 6, set, {0}, 0, true);
  EXPECT_EQ(turned.objects[0].box, (CornerBox{0, 0, 2, 2}));  // clockwise: the left edge becomes the top
  EXPECT_EQ(turned.objects[0].mask.bytes[0], 1);
  EXPECT_TRUE(turned.objects[0].crowd);
  test::expect_error<base::InputError>([&] { annotate(Image(5, 3), 1, set, {0}, 0, true); },
                                       {"f.json: image 4 (a.jpg)", "expected 3 x 5", "found 5 x 3"});
}

}  // namespace
}  // namespace mnemo::data
