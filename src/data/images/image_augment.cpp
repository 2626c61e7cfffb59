#include "data/images/image_augment.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "data/draws.h"
#include "data/images/image_options.h"

namespace mnemo::data {
namespace {

using LookupTable = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

template <class F>
LookupTable table_of(F&& value) {
  LookupTable table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = static_cast<uint8_t>(value(i));
  return table;
}

/// Applies a lookup table to all channels, or one to each channel.
template <size_t N>
Image looked_up(Image image, const std::array<LookupTable, N>& tables) {
  for (size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = tables[i % N][image.bytes[i]];
  return image;
}
template <class F>
Image mapped(const Image& image, F&& value) {
  return looked_up(image, std::array<LookupTable, 1>{table_of(value)});
}
/// Makes a lookup table for each channel from its histogram.
template <class F>
Image mapped_by_histogram(const Image& image, F&& table) {
  std::array<Histogram, 3> counts{};
  for (size_t i = 0; i < image.bytes.size(); ++i) ++counts[i % 3][image.bytes[i]];
  return looked_up(image, std::array<LookupTable, 3>{table(counts[0]), table(counts[1]), table(counts[2])});
}

LookupTable contrast_table(const Histogram& counts) {
  const auto used = [](int64_t count) { return count > 0; };
  const auto low = std::find_if(counts.begin(), counts.end(), used) - counts.begin();
  const auto high = 255 - (std::find_if(counts.rbegin(), counts.rend(), used) - counts.rbegin());
  if (high <= low) return table_of([](int i) { return i; });
  const double scale = 255.0 / static_cast<double>(high - low), offset = -static_cast<double>(low) * scale;
  return table_of([&](int i) { return std::clamp(static_cast<int>(i * scale + offset), 0, 255); });
}

LookupTable equal_table(const Histogram& counts) {
  int64_t pixels = 0, last = 0, different = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    pixels += count;
    last = count;
    ++different;
  }
  const int64_t step = (pixels - last) / 255;
  if (different <= 1 || step == 0) return table_of([](int i) { return i; });
  int64_t sum = step / 2;
  return table_of([&](int i) {
    const int64_t value = std::min<int64_t>(sum / step, 255);
    sum += counts[static_cast<size_t>(i)];
    return value;
  });
}

int grey_of(const uint8_t* pixel) { return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 32768) >> 16; }

/// a + f (b - a) in float32, clipped and truncated: blends the degenerate image a with the image b.
uint8_t blended(int a, int b, float f) {
  const float value = static_cast<float>(a) + f * static_cast<float>(b - a);
  return value <= 0.0F ? 0 : value >= 255.0F ? 255 : static_cast<uint8_t>(value);
}
/// Blends every byte with degenerate(y, x, c).
template <class F>
Image blended(const Image& image, double factor, F&& degenerate) {
  if (factor == 1.0) return image;
  Image out(image.height, image.width);
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int c = 0; c < 3; ++c)
        out.at(y, x)[c] = blended(degenerate(y, x, c), image.at(y, x)[c], static_cast<float>(factor));
    }
  }
  return out;
}

Image change_contrast(const Image& image, double factor) {
  int64_t sum = 0;
  for (size_t i = 0; i < image.bytes.size(); i += 3) sum += grey_of(image.bytes.data() + i);
  const auto mean = static_cast<int>(static_cast<double>(sum) / static_cast<double>(image.height * image.width) + 0.5);
  return blended(image, factor, [&](int64_t, int64_t, int) { return mean; });
}

Image change_sharpness(const Image& image, double factor) {
  return blended(image, factor, [&](int64_t y, int64_t x, int c) -> int {
    if (y == 0 || x == 0 || y == image.height - 1 || x == image.width - 1) return image.at(y, x)[c];
    int sum = 4 * image.at(y, x)[c];
    for (int64_t dy = -1; dy <= 1; ++dy) {
      for (int64_t dx = -1; dx <= 1; ++dx) sum += image.at(y + dy, x + dx)[c];
    }
    return (2 * sum + 13) / 26;  // sum / 13 + 0.5
  });
}

/// Maps output pixel (x, y) to u = m0 (x + 0.5) + m1 (y + 0.5) + m2, v = m3 (x + 0.5) + m4 (y + 0.5) + m5.
class Affine {
 public:
  Affine(const Image& image, const std::array<double, 6>& matrix, const AugmentGeometry& geometry)
      : image_(image), matrix_(matrix), geometry_(geometry) {}

  Image operator()() const {
    Image out(image_.height, image_.width);
    for (int64_t y = 0; y < out.height; ++y) {
      for (int64_t x = 0; x < out.width; ++x)
        read(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5, out.at(y, x));
    }
    return out;
  }

 private:
  void read(double x, double y, uint8_t* to) const {
    const double u = matrix_[0] * x + matrix_[1] * y + matrix_[2], v = matrix_[3] * x + matrix_[4] * y + matrix_[5];
    if (!(u >= 0.0 && u < static_cast<double>(image_.width) && v >= 0.0 && v < static_cast<double>(image_.height))) {
      std::copy(geometry_.fill.begin(), geometry_.fill.end(), to);
      return;
    }
    const double left = std::floor(u - 0.5), top = std::floor(v - 0.5);
    const double dx = u - 0.5 - left, dy = v - 0.5 - top;
    const auto column = static_cast<int64_t>(left), row = static_cast<int64_t>(top);
    for (int c = 0; c < 3; ++c) {
      to[c] = geometry_.interpolation == Interpolation::bicubic ? bicubic(row, column, c, dy, dx)
                                                                : bilinear(row, column, c, dy, dx);
    }
  }

  /// Coordinates outside the image are clamped to the border.
  double pixel(int64_t y, int64_t x, int c) const {
    return image_.at(std::clamp<int64_t>(y, 0, image_.height - 1), std::clamp<int64_t>(x, 0, image_.width - 1))[c];
  }
  uint8_t bilinear(int64_t y, int64_t x, int c, double dy, double dx) const {
    const auto between = [](double a, double b, double d) { return a + (b - a) * d; };
    const double above = between(pixel(y, x, c), pixel(y, x + 1, c), dx),
                 below = between(pixel(y + 1, x, c), pixel(y + 1, x + 1, c), dx);
    return static_cast<uint8_t>(between(above, below, dy));
  }
  static double cubic(double a, double b, double c, double d, double at) {
    const double p1 = b, p2 = c - a, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return p1 + at * (p2 + at * (p3 + at * p4));
  }
  uint8_t bicubic(int64_t y, int64_t x, int c, double dy, double dx) const {
    std::array<double, 4> rows;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t at = y - 1 + i;
      rows[static_cast<size_t>(i)] = cubic(pixel(at, x - 1, c), pixel(at, x, c), pixel(at, x + 1, c),
                                           pixel(at, x + 2, c), dx);
    }
    const double value = cubic(rows[0], rows[1], rows[2], rows[3], dy);
    return value <= 0.0 ? 0 : value >= 255.0 ? 255 : static_cast<uint8_t>(value);
  }

  const Image& image_;
  std::array<double, 6> matrix_;
  AugmentGeometry geometry_;
};

Image rotate(const Image& image, double degrees, const AugmentGeometry& geometry) {
  // Reduce to 0 to 360 first, like Pillow: the sines of both forms may differ in the last bit.
  degrees -= std::floor(degrees / 360.0) * 360.0;
  if (degrees == 0.0) return image;
  const auto rounded = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double angle = -degrees * std::numbers::pi / 180.0, c = rounded(std::cos(angle)), s = rounded(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2.0, y = static_cast<double>(image.height) / 2.0;
  return Affine(image, {c, s, c * -x + s * -y + x, -s, c, -s * -x + c * -y + y}, geometry)();
}

}  // namespace

double augment_argument(AugmentType type, double level, int sign) {
  const double part = level / 10.0;
  switch (type) {
    case AugmentType::auto_contrast:
    case AugmentType::equalize:
    case AugmentType::invert:
      return 0.0;
    case AugmentType::rotate:
      return sign * (part * 30.0);
    case AugmentType::posterize:
      return 4 - static_cast<int>(part * 4);
    case AugmentType::solarize:
      return 256 - std::min(256, static_cast<int>(part * 256));
    case AugmentType::solarize_add:
      return std::min(128, static_cast<int>(part * 110));
    case AugmentType::color:
    case AugmentType::contrast:
    case AugmentType::brightness:
    case AugmentType::sharpness:
      return std::max(0.1, 1.0 + sign * (part * 0.9));
    case AugmentType::shear_x:
    case AugmentType::shear_y:
      return sign * (part * 0.3);
    case AugmentType::translate_x:
    case AugmentType::translate_y:
      return sign * (part * 0.45);
  }
  return 0.0;
}

Image augment(const Image& image, AugmentType type, double argument, const AugmentGeometry& geometry) {
  const auto whole_argument = static_cast<int>(argument);
  switch (type) {
    case AugmentType::auto_contrast:
      return mapped_by_histogram(image, contrast_table);
    case AugmentType::equalize:
      return mapped_by_histogram(image, equal_table);
    case AugmentType::invert:
      return mapped(image, [](int i) { return 255 - i; });
    case AugmentType::rotate:
      return rotate(image, argument, geometry);
    case AugmentType::posterize:
      return mapped(image, [&](int i) { return i & ~((1 << (8 - whole_argument)) - 1); });
    case AugmentType::solarize:
      return mapped(image, [&](int i) { return i < whole_argument ? i : 255 - i; });
    case AugmentType::solarize_add:
      return mapped(image, [&](int i) { return i < 128 ? std::min(255, i + whole_argument) : i; });
    case AugmentType::color:
      return blended(image, argument, [&](int64_t y, int64_t x, int) { return grey_of(image.at(y, x)); });
    case AugmentType::contrast:
      return change_contrast(image, argument);
    case AugmentType::brightness:
      return blended(image, argument, [](int64_t, int64_t, int) { return 0; });
    case AugmentType::sharpness:
      return change_sharpness(image, argument);
    case AugmentType::shear_x:
      return Affine(image, {1, argument, 0, 0, 1, 0}, geometry)();
    case AugmentType::shear_y:
      return Affine(image, {1, 0, 0, argument, 1, 0}, geometry)();
    case AugmentType::translate_x:
      return Affine(image, {1, 0, argument * static_cast<double>(image.width), 0, 1, 0}, geometry)();
    case AugmentType::translate_y:
      return Affine(image, {1, 0, 0, 0, 1, argument * static_cast<double>(image.height)}, geometry)();
  }
  return image;
}

Image rand_augment(Image image, const RandAugmentOptions& options, std::array<uint8_t, 3> fill, base::Random& random) {
  for (int64_t i = 0; i < options.num_ops; ++i) {
    const auto type = static_cast<AugmentType>(random.below(kNumAugmentTypes));
    // All numbers are drawn whether they are used or not, so that later draws do not depend on it.
    const bool done = draw_chance(random, options.probability);
    const double level = std::clamp(options.magnitude + options.magnitude_std * draw_normal(random), 0.0, 10.0);
    const int sign = draw_chance(random, 0.5) ? 1 : -1;
    const Interpolation interpolation = draw_chance(random, 0.5) ? Interpolation::bilinear : Interpolation::bicubic;
    if (done) image = augment(image, type, augment_argument(type, level, sign), {interpolation, fill});
  }
  return image;
}

}  // namespace mnemo::data
