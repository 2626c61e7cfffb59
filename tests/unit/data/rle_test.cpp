// Masks as runs against masks as pixels, on random and extreme ones; texts and polygons that are refused.
#include "data/detection/rle.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

struct PixelMask {
  int64_t height, width;
  std::vector<uint8_t> pixels;
  Rle rle() const { return rle_encode(pixels.data(), height, width); }
};

std::vector<PixelMask> random_masks(int64_t height, int64_t width, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(height * 100 + width));
  std::vector<PixelMask> masks;
  for (const int percent : {0, 100, 5, 50, 95}) {
    for (size_t i = 0; i < count; ++i) {
      PixelMask mask{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width))};
      for (uint8_t& pixel : mask.pixels) pixel = static_cast<int>(random() % 100) < percent ? 1 : 0;
      masks.push_back(std::move(mask));
    }
  }
  return masks;
}

constexpr std::pair<int64_t, int64_t> kSizes[] = {{1, 1}, {1, 7}, {7, 1}, {5, 6}, {40, 33}};

TEST(Rle, IsItsPixels) {
  for (const auto& [height, width] : kSizes) {
    for (const PixelMask& mask : random_masks(height, width, 3)) {
      const Rle rle = mask.rle();
      std::vector<uint8_t> decoded(mask.pixels.size(), 7);
      rle_decode(rle, decoded.data());
      EXPECT_EQ(decoded, mask.pixels);
      EXPECT_EQ(rle_parse(rle_text(rle), height, width, "mask"), rle);
      EXPECT_EQ(rle_area(rle), std::count(mask.pixels.begin(), mask.pixels.end(), 1));
      int64_t left = width, top = height, right = -1, bottom = -1;
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          if (mask.pixels[static_cast<size_t>(y * width + x)] == 0) continue;
          left = std::min(left, x), right = std::max(right, x), top = std::min(top, y), bottom = std::max(bottom, y);
        }
      }
      const XywhBox box = right < 0
                              ? XywhBox{0, 0, 0, 0}
                              : XywhBox{double(left), double(top), double(right - left + 1), double(bottom - top + 1)};
      EXPECT_EQ(rle_box(rle), box);
    }
  }
}

TEST(Rle, MergedIsMergedByPixels) {
  for (const auto& [height, width] : kSizes) {
    const std::vector<PixelMask> masks = random_masks(height, width, 2);
    for (const PixelMask& a : masks) {
      for (const PixelMask& b : masks) {
        PixelMask both = a, either = a;
        for (size_t i = 0; i < a.pixels.size(); ++i) {
          both.pixels[i] = a.pixels[i] & b.pixels[i];
          either.pixels[i] = a.pixels[i] | b.pixels[i];
        }
        const std::vector<Rle> pair = {a.rle(), b.rle()};
        EXPECT_EQ(rle_merge(pair, RleMerge::intersect), both.rle());
        EXPECT_EQ(rle_merge(pair, RleMerge::unite), either.rle());
        EXPECT_EQ(rle_shared(pair[0], pair[1]), rle_area(both.rle()));
      }
    }
  }
}

TEST(Rle, TextsThatAreNoMaskAreRefused) {
  const std::string text = rle_text(random_masks(5, 6, 1)[3].rle());
  const auto refused = [](std::string_view bad, int64_t height, int64_t width, const std::string& part) {
    test::expect_error<base::InputError>([&] { rle_parse(bad, height, width, "f.json: annotation 3"); },
                                         {"f.json: annotation 3", part});
  };
  refused(text, 5, 7, "expected 5 x 7 = 35 pixels, found 30");
  refused(text, 5, 5, "expected a mask of 5 x 5");
  refused("", 5, 6, "found 0");
  refused("/", 5, 6, "found byte 47");
  refused("p", 5, 6, "found byte 112");
  refused("O", 5, 6, "a run of -1");
  refused("ooooooooooooooooooo", 5, 6, "more than 40 bits");
  refused("P", 5, 6, "the end of the text");
  refused("o\xff", 5, 6, "found byte 255");
  refused("0", 1'000'000, 1'000'000, "expected a mask of 1 to");
  refused("0", int64_t{1} << 62, 4, "expected a mask of 1 to");
  refused("0", 0, 4, "expected a mask of 1 to");
  const std::vector<int64_t> negative = {10, -3, 23}, huge = {INT64_MAX, INT64_MAX};
  for (const auto& counts : {negative, huge})
    test::expect_error<base::InputError>([&] { rle_of_counts(counts, 5, 6, "m"); }, {"m: counts", "a run of"});
}

TEST(RlePolygon, ABoxFillsItsPixels) {
  const Rle mask = rle_of_box({2, 1, 4, 3}, 6, 9, "box");
  EXPECT_EQ(rle_area(mask), 12);
  EXPECT_EQ(rle_box(mask), (XywhBox{2, 1, 4, 3}));
}

// Parts outside of the image are cut off, whatever the direction and the start of the outline.
TEST(RlePolygon, OutsideIsCutOff) {
  const Rle inside = rle_of_polygon(std::vector<double>{0, 0, 5, 0, 5, 4, 0, 4}, 4, 5, "p");
  EXPECT_EQ(rle_area(inside), 20);
  EXPECT_EQ(rle_of_polygon(std::vector<double>{-900, -900, 900, -900, 900, 900, -900, 900}, 4, 5, "p"), inside);
  EXPECT_EQ(rle_of_polygon(std::vector<double>{900, 900, 900, -900, -900, -900, -900, 900}, 4, 5, "p"), inside);
  EXPECT_EQ(rle_area(rle_of_polygon(std::vector<double>{50, 50, 60, 50, 60, 60}, 4, 5, "p")), 0);
}

TEST(RlePolygon, RefusesWhatIsNone) {
  const auto refused = [](const std::vector<double>& points, const std::string& part) {
    test::expect_error<base::InputError>([&] { rle_of_polygon(points, 10, 10, "annotation 9"); },
                                         {"annotation 9", part});
  };
  refused({1, 2, 3, 4}, "at least three points");
  refused({1, 2, 3, 4, 5, 6, 7}, "found 7 numbers");
  refused({1, 2, 3, 4, 5, std::nan("")}, "coordinates of at most");
  refused({1, 2, 3, 4, 5, 1e300}, "coordinates of at most");
  refused({0, 0, 1.6e7, 0, 0, 1.6e7}, "the outline is longer");
}

}  // namespace
}  // namespace mnemo::data
