#include "data/images/image_transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "base/file_io.h"
#include "base/json_value.h"
#include "base/options.h"
#include "data/draws.h"
#include "data/images/image_augment.h"
#include "data/images/image_mix.h"
#include "data/images/image_reader.h"
#include "image_files.h"
#include "tests/support/image_names.h"

namespace mnemo::data {
namespace {

Image photo() { return read_image(golden_image("photo_7865c0.jpg")); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double variance(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += (value - mean(values)) * (value - mean(values));
  return sum / static_cast<double>(values.size());
}
template <class F>
std::vector<double> drawn(F&& draw, int count = 4000) {
  base::Random random{7};
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(draw(random));
  return values;
}

TEST(Draws, HaveTheMomentsOfTheirDistributions) {
  const auto uniform = drawn([](base::Random& r) { return draw_uniform(r); });
  EXPECT_NEAR(mean(uniform), 0.5, 0.02);
  EXPECT_NEAR(variance(uniform), 1.0 / 12, 0.005);
  const auto normal = drawn([](base::Random& r) { return draw_normal(r); });
  EXPECT_NEAR(mean(normal), 0.0, 0.06);
  EXPECT_NEAR(variance(normal), 1.0, 0.08);
  for (const double alpha : {0.1, 0.8, 1.0, 4.0}) {
    const auto beta = drawn([&](base::Random& r) { return draw_beta(r, alpha); });
    EXPECT_NEAR(mean(beta), 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance(beta), 1.0 / (4.0 * (2.0 * alpha + 1.0)), 0.01) << alpha;
  }
}

TEST(ImageResize, APartIsResizedAsIfItHadBeenCutOutFirst) {
  const Image image = photo();
  const ImageBox box{7, 11, 40, 31};
  Image part(box.height, box.width);
  for (int64_t y = 0; y < box.height; ++y) std::copy_n(image.at(box.top + y, box.left), box.width * 3, part.row(y));
  for (const auto interpolation : {Interpolation::box, Interpolation::bilinear, Interpolation::bicubic}) {
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{40, 31}, {40, 16}, {13, 31}, {80, 7}, {1, 1}}) {
      EXPECT_EQ(resize(image, box, h, w, interpolation), resize(part, h, w, interpolation)) << h << " x " << w;
    }
  }
}

/// The image of tests/data/pillow/make.py.
Image summed(int64_t height, int64_t width) {
  Image image(height, width);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        image.at(y, x)[c] = static_cast<uint8_t>((31 * y * y + 17 * x + 101 * c + 7 * x * y) % 256);
    }
  }
  return image;
}

std::string hexadecimal(const Image& image) {
  std::string text;
  for (const uint8_t byte : image.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(ImageResize, HasTheBytesOfPillow12And13) {
  for (const auto& [version, resizing] :
       {std::pair("pillow12", Resizing::pillow12), {"pillow13", Resizing::pillow13}}) {
    const std::string path = fmt::format(MNEMO_SOURCE_DIR "/tests/data/pillow/{}.json", version);
    const base::Node cases = base::parse_json(base::read_file(path), path);
    ASSERT_EQ(cases.size(), 30u);
    for (const base::Node& one : cases.items()) {
      const auto size = [&](const char* key, size_t i) { return one.at(key).items()[i].as_int(); };
      const Interpolation interpolation = test::interpolation_of(one.at("interpolation").as_string());
      const Image image = summed(size("from", 0), size("from", 1));
      const int64_t h = size("to", 0), w = size("to", 1);
      const Image found = resize(image, h, w, interpolation, resizing);
      EXPECT_EQ(hexadecimal(found), one.at("bytes").as_string()) << version << " " << base::to_json(one, -1);
      const ImageBox window{h / 3, w / 4, h / 2, std::max<int64_t>(1, w / 3)};
      EXPECT_EQ(resize(image, whole(image), h, w, window, interpolation, resizing),
                resize(found, window, window.height, window.width, interpolation));
    }
  }
}

TEST(ImageOptions, ATableOfAnEarlierVersionResizesAsThatVersionDid) {
  base::Node table = base::write_options(ImageOptions());
  EXPECT_EQ(table.at("test_crop").at("resize").as_string(), "pillow13");
  ImageOptions::from_earlier(table);
  EXPECT_EQ(table.at("test_crop").at("resize").as_string(), "pillow13") << "that says it";
  table.find("test_crop")->erase("resize");
  base::Node written = table;
  ImageOptions::from_earlier(table);
  EXPECT_EQ(table.at("test_crop").at("resize").as_string(), "pillow12");
  written.erase("keep_decoded");
  ImageOptions::from_earlier(written);
  EXPECT_FALSE(written.at("test_crop").contains("resize")) << "not every key: written by hand";
}

// torch.nn.functional.interpolate without antialiasing, as torchvision's detectors resize.
TEST(ImageResize, NearestFourAreThoseOfTorch) {
  Image image(11, 17);
  for (size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = static_cast<uint8_t>(i * 97 % 251);
  const at::Tensor pixels = at::from_blob(image.bytes.data(), {1, 11, 17, 3}, at::kByte).permute({0, 3, 1, 2});
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>(5, 8), {22, 17}, {11, 40}, {3, 40}}) {
    const Image own = resize(image, height, width, Interpolation::nearest_four);
    const at::Tensor expected = at::upsample_bilinear2d(pixels.to(at::kDouble), {height, width}, false)
                                    .permute({0, 2, 3, 1})
                                    .contiguous();
    const auto* value = expected.const_data_ptr<double>();
    // One axis after the other, each rounded to bytes.
    for (size_t i = 0; i < own.bytes.size(); ++i) EXPECT_NEAR(own.bytes[i], value[i], 1.01);
  }
  const Image halved = resize(image, 5, 17, Interpolation::bilinear);
  EXPECT_NE(halved.bytes, resize(image, 5, 17, Interpolation::nearest_four).bytes);
}

TEST(ImageResize, AWindowIsThatPartOfTheWhole) {
  const Image image = read_image(golden_image("photo_7865c0.jpg"));
  for (const Interpolation interpolation : {Interpolation::box, Interpolation::bilinear, Interpolation::bicubic}) {
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{9, 300},
                               {200, 7},
                               {50, image.width},
                               {image.height, 33},
                               {image.height, image.width}}) {
      const ImageBox box = whole(image), window{h / 3, w / 4, h / 2, w / 3};
      EXPECT_EQ(resize(image, box, h, w, window, interpolation),
                resize(resize(image, h, w, interpolation), window, window.height, window.width, interpolation))
          << h << " x " << w;
    }
  }
}

// Resized as a whole, these would have 230 million pixels; only 224 x 224 of them are kept.
TEST(TestCrop, AnImageOfOnePixelsWidthCostsNoMoreThanWhatIsKept) {
  ImageTestOptions options;
  using Mode = ImageTestOptions::CropMode;
  for (const Mode mode : {Mode::center, Mode::squash}) {
    options.crop_mode = mode;
    const int64_t length = mode == Mode::center ? 900'000 : 90'000;  // squashing reads every pixel
    Image wide(1, length), tall(length, 1);
    for (int64_t i = 0; i < length; ++i) {
      // The middle has a different colour.
      for (Image* image : {&wide, &tall})
        std::fill_n(image->bytes.begin() + i * 3, 3,
                    static_cast<uint8_t>(std::abs(i - length / 2) < length / 2000 ? 200 : 100));
    }
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{224, 224}, {96, 160}}) {
      const TestCrop crop = TestCrop::of(options, height, width);
      for (const Image* image : {&wide, &tall}) {
        const Image kept = crop(*image);
        ASSERT_EQ(kept.height, height);
        ASSERT_EQ(kept.width, width);
        EXPECT_EQ(kept.at(0, 0)[0], mode == Mode::center ? 200 : 100);
      }
    }
  }
}

TEST(ImageResize, OneColourStaysOneColour) {
  Image image(23, 17);
  std::fill(image.bytes.begin(), image.bytes.end(), uint8_t{201});
  for (const auto interpolation : {Interpolation::box, Interpolation::bilinear, Interpolation::bicubic}) {
    for (const uint8_t byte : resize(image, 9, 40, interpolation).bytes) ASSERT_EQ(byte, 201);
  }
}

TEST(CropBox, LiesInsideAndHasTheAskedShareAndForm) {
  base::Random random{3};
  for (int i = 0; i < 2000; ++i) {
    const ImageBox box = draw_crop_box(80, 60, {0.08, 1.0}, {0.75, 4.0 / 3.0}, random);
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 80 && box.left + box.width <= 60);
    EXPECT_GE(static_cast<double>(box.height * box.width), 0.07 * 4800);
    const double form = static_cast<double>(box.width) / static_cast<double>(box.height);
    EXPECT_TRUE(form > 0.7 && form < 1.42) << form;
  }
  // No box of that shape fits into a thin image, so the largest middle part is taken.
  EXPECT_EQ(draw_crop_box(1, 50, {0.9, 1.0}, {0.75, 4.0 / 3.0}, random), (ImageBox{0, 24, 1, 1}));
}

TEST(RandAugment, DrawsEveryOperationAndNothingElseThanItsSeedDecides) {
  const Image image = photo();
  RandAugmentOptions options{.num_ops = 2, .magnitude = 9, .magnitude_std = 0.5, .probability = 0.5};
  std::set<std::vector<uint8_t>> different;
  int unchanged = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Random first{seed}, second{seed};
    const Image a = rand_augment(image, options, {1, 2, 3}, first);
    EXPECT_EQ(a, rand_augment(image, options, {1, 2, 3}, second));
    unchanged += a == image;
    different.insert(a.bytes);
  }
  EXPECT_TRUE(unchanged > 3 && unchanged < 35) << unchanged;  // a quarter, plus operations that change nothing
  EXPECT_GT(different.size(), 25u);
  options.num_ops = 0;
  base::Random random{1};
  EXPECT_EQ(rand_augment(image, options, {}, random), image);
}

// With the same draws as rand_augment(): the operation, whether, the magnitude, the sign and the interpolation.
TEST(RandAugment, WithoutDeviationAnOperationHasTheGivenMagnitude) {
  const Image image = photo();
  const RandAugmentOptions options{.num_ops = 1, .magnitude = 7, .magnitude_std = 0, .probability = 1};
  const std::array<uint8_t, 3> fill = {1, 2, 3};
  std::set<AugmentType> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Random random{seed}, twin{seed};
    const auto type = static_cast<AugmentType>(twin.below(kNumAugmentTypes));
    draw_chance(twin, 1.0);
    draw_normal(twin);
    const int sign = draw_chance(twin, 0.5) ? 1 : -1;
    const Interpolation interpolation = draw_chance(twin, 0.5) ? Interpolation::bilinear : Interpolation::bicubic;
    EXPECT_EQ(rand_augment(image, options, fill, random),
              augment(image, type, augment_argument(type, 7.0, sign), {interpolation, fill}))
        << static_cast<int>(type);
    seen.insert(type);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kNumAugmentTypes));
}

// The step is computed from all pixels except those of the last value: 300 of 600, so that the lower value stays 0 and
// the higher one 255.
TEST(RandAugment, EqualizeLeavesTheLastValueOutOfItsStep) {
  Image image(10, 60);
  std::fill(image.bytes.begin() + 900, image.bytes.end(), uint8_t{200});
  const Image out = augment(image, AugmentType::equalize, 0, {});
  EXPECT_EQ(out.bytes.front(), 0);
  EXPECT_EQ(out.bytes.back(), 255);
}

TEST(ImageTransform, PaddedCropsMoveTheImageByAtMostThePadding) {
  ImageOptions options = small_images("", {16, 20});
  options.augment.crop = ImageAugmentOptions::Crop::padded;
  options.augment.padding = 3;
  options.test_crop.crop_pct = 1.0;
  options.augment.flip = 0;
  const ImageTransform transform(options);
  Image image(16, 20);
  for (size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = static_cast<uint8_t>(1 + i % 251);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    base::Random random{seed};
    const Image out = transform.augmented(image, random);
    bool found = false;
    for (int64_t dy = -3; dy <= 3 && !found; ++dy) {
      for (int64_t dx = -3; dx <= 3 && !found; ++dx) {
        found = true;
        for (int64_t y = 0; y < 16 && found; ++y) {
          for (int64_t x = 0; x < 20 && found; ++x) {
            const bool inside = y + dy >= 0 && y + dy < 16 && x + dx >= 0 && x + dx < 20;
            found = *out.at(y, x) == (inside ? *image.at(y + dy, x + dx) : 0);
          }
        }
        if (found) seen.emplace(dy, dx);
      }
    }
    ASSERT_TRUE(found) << seed;
  }
  EXPECT_EQ(seen.size(), 49u);
}

TEST(ImageTransform, AFlipMirrorsTheTestCrop) {
  ImageOptions options = small_images("", {16, 20});
  options.augment.crop = ImageAugmentOptions::Crop::none;
  const Image image = photo(), crop = TestCrop::of(options.test_crop, 16, 20)(image);
  for (const bool flip : {false, true}) {
    options.augment.flip = flip ? 1.0 : 0.0;
    const ImageTransform transform(options);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      base::Random random{seed};
      const Image found = transform.augmented(image, random);
      bool same = true;
      for (int64_t y = 0; y < 16; ++y) {
        for (int64_t x = 0; x < 20; ++x)
          same = same && std::equal(found.at(y, x), found.at(y, x) + 3, crop.at(y, flip ? 19 - x : x));
      }
      EXPECT_TRUE(same) << flip << " seed " << seed;
    }
  }
}

TEST(ImageTransform, ErasedBoxesAreFilledAsTheModeSays) {
  ImageOptions options = small_images("", {24, 24});
  const Image image = photo();
  const auto pixels_of = [&](double erase, const std::string& mode) {
    const base::Node node = base::Node::table(
        {{"crop", "none"}, {"flip", 0.0}, {"erase", erase}, {"erase_mode", mode}});
    options.augment = base::read_options<ImageAugmentOptions>(node);
    const ImageTransform transform(options);
    std::vector<float> pixels(static_cast<size_t>(transform.numbers()));
    base::Random random{5};
    transform.train(image, random, pixels.data());
    return pixels;
  };
  for (const std::string mode : {"pixel", "rand", "const"}) {
    const std::vector<float> whole = pixels_of(0.0, mode), erased = pixels_of(1.0, mode);
    std::array<std::set<float>, 3> values;
    size_t changed = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] == erased[i]) continue;
      values[i / (24 * 24)].insert(erased[i]);
      ++changed;
    }
    ASSERT_GT(changed, 3U) << mode;
    if (mode == "pixel") {
      EXPECT_GT(values[0].size() + values[1].size() + values[2].size(), changed / 2);
      continue;
    }
    for (const std::set<float>& of_channel : values) ASSERT_EQ(of_channel.size(), 1U) << mode;
    const float red = *values[0].begin(), green = *values[1].begin(), blue = *values[2].begin();
    if (mode == "const") {
      EXPECT_TRUE(red == 0.0F && green == 0.0F && blue == 0.0F);
    } else {
      EXPECT_TRUE(red != green && green != blue && blue != red) << "each channel has its own";
    }
  }
}

TEST(ImageTransform, ErasingLeavesTheRestAlone) {
  ImageOptions options = small_images("", {24, 24});
  options.augment.crop = ImageAugmentOptions::Crop::none;
  options.augment.flip = 0;
  const ImageTransform plain(options);
  options.augment.erase = 1.0;
  const Image image = photo();
  std::vector<float> whole(static_cast<size_t>(plain.numbers())), erased(whole.size());
  using Mode = ImageAugmentOptions::EraseMode;
  for (const Mode mode : {Mode::pixel, Mode::colour, Mode::constant}) {
    options.augment.erase_mode = mode;
    const ImageTransform transform(options);
    base::Random one{5}, two{5};
    plain.train(image, one, whole.data());
    transform.train(image, two, erased.data());
    size_t changed = 0;
    std::set<size_t> rows, columns;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] == erased[i]) continue;
      ++changed;
      rows.insert(i / 24 % 24);
      columns.insert(i % 24);
    }
    EXPECT_TRUE(changed > whole.size() / 100 && changed < whole.size() / 2) << static_cast<int>(mode) << " " << changed;
    EXPECT_EQ(changed, 3 * rows.size() * columns.size());
    EXPECT_TRUE(rows.size() < 24 && columns.size() < 24);
  }
}

TEST(ImageMix, TargetsAreSharesThatSumToOne) {
  const std::vector<int64_t> labels = {0, 3, 2, 3};
  std::vector<double> targets(16);
  mix_targets(labels.data(), 4, 4, 0.1, 0.7, targets.data());
  for (size_t b = 0; b < 4; ++b)
    EXPECT_NEAR(std::accumulate(targets.begin() + static_cast<long>(b * 4),
                                targets.begin() + static_cast<long>(b * 4 + 4), 0.0),
                1.0, 1e-12);
  EXPECT_NEAR(targets[0], 0.7 * 0.9 + 0.025, 1e-12);
  EXPECT_NEAR(targets[3], 0.3 * 0.9 + 0.025, 1e-12);
}

TEST(ImageMix, DrawsBothKindsAsTheOptionsSay) {
  ImageAugmentOptions options;
  options.mixup = 0.8;
  options.cutmix = 1.0;
  int cut = 0, mixed = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    base::Random random{seed};
    const ImageMix mix = draw_mix(options, 32, 32, random);
    if (mix.box.height * mix.box.width > 0) {
      ++cut;
      EXPECT_NEAR(mix.lambda, 1.0 - static_cast<double>(mix.box.height * mix.box.width) / 1024.0, 1e-12);
    } else if (mix.lambda < 1.0) {
      ++mixed;
    }
  }
  EXPECT_TRUE(cut > 400 && cut < 560) << cut;
  EXPECT_TRUE(mixed > 420 && mixed < 580) << mixed;
  options.mix_probability = 0;
  base::Random random{1};
  EXPECT_EQ(draw_mix(options, 32, 32, random).lambda, 1.0);
}

TEST(ImageMix, TheSwitchChoosesBetweenBoth) {
  ImageAugmentOptions options;
  options.mixup = 0.8;
  options.cutmix = 1.0;
  for (const bool cut : {false, true}) {
    options.switch_probability = cut ? 1.0 : 0.0;
    int boxes = 0, unmixed = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      base::Random random{seed};
      const ImageMix mix = draw_mix(options, 32, 32, random);
      boxes += mix.box.height * mix.box.width > 0;
      unmixed += mix.lambda == 1.0;  // by cutmix, a box that is too small for a pixel
    }
    if (cut) {
      EXPECT_EQ(boxes + unmixed, 200);
      EXPECT_GT(boxes, 150);
    } else {
      EXPECT_EQ(boxes, 0);
      EXPECT_EQ(unmixed, 0);
    }
  }
}

}  // namespace
}  // namespace mnemo::data
