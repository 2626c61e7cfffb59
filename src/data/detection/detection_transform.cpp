#include "data/detection/detection_transform.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/draws.h"
#include "data/images/image_augment.h"

namespace mnemo::data {
namespace {

constexpr int64_t kLongestSide = 1 << 14;

int64_t draw_below(base::Random& random, int64_t bound) {
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
}

}  // namespace

DetectionTransform::DetectionTransform(const DetectionTransformOptions& options)
    : options_(options), normaliser_(options.mean, options.std) {
  base::require(!options.sides.empty() && std::all_of(options.sides.begin(), options.sides.end(),
                                                      [](int64_t s) { return s > 0 && s <= kLongestSide; }),
                "sides: expected sides of 1 to {} pixels", kLongestSide);
  base::require(options.longest > 0 && options.longest <= kLongestSide, "longest: expected 1 to {}, found {}",
                kLongestSide, options.longest);
  base::require(options.flip >= 0 && options.flip <= 1, "flip: expected 0 to 1, found {}", options.flip);
  base::require(options.colour >= 0 && options.colour < 1, "colour: expected 0 or more and less than 1, found {}",
                options.colour);
  base::require(options.jitter.empty() || (options.jitter.size() == 2 && options.jitter[0] > 0 &&
                                           options.jitter[0] <= options.jitter[1] && options.jitter[1] <= 16),
                "{}", "jitter: expected two scales above 0 and up to 16, the smaller first");
  largest_ = *std::max_element(options.sides.begin(), options.sides.end());
  for (size_t c = 0; c < 3; ++c)
    fill_[c] = static_cast<uint8_t>(std::lround(std::clamp(options.mean[c], 0.0, 1.0) * 255));
}

AnnotatedImage DetectionTransform::train(const AnnotatedImage& image, base::Random& random) const {
  AnnotatedImage out;
  if (options_.jitter.empty()) {
    const int64_t
        side = options_.sides[static_cast<size_t>(draw_below(random, static_cast<int64_t>(options_.sides.size())))];
    out = at_side(image, side);
  } else {
    out = jittered(image, random);
  }
  if (draw_chance(random, options_.flip)) mirror(out);
  if (options_.colour > 0) recolour(out.image, random);
  return out;
}

AnnotatedImage DetectionTransform::measure(const AnnotatedImage& image) const { return at_side(image, largest_); }

Interpolation DetectionTransform::interpolation() const {
  return options_.resize == DetectionResize::pillow ? Interpolation::bilinear : Interpolation::nearest_four;
}

AnnotatedImage DetectionTransform::at_side(const AnnotatedImage& image, int64_t side) const {
  const auto [height, width] = short_side_size(image.image.height, image.image.width, side, options_.longest,
                                               options_.resize);
  return resized(image, height, width, interpolation());
}

AnnotatedImage DetectionTransform::jittered(const AnnotatedImage& image, base::Random& random) const {
  const double scale = draw_uniform(random, options_.jitter[0], options_.jitter[1]) * static_cast<double>(largest_) /
                       static_cast<double>(std::max(image.image.height, image.image.width));
  const auto scaled = [&](int64_t side) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(side) * scale));
  };
  const AnnotatedImage large = resized(image, scaled(image.image.height), scaled(image.image.width), interpolation());
  const int64_t top = draw_below(random, std::max<int64_t>(0, large.image.height - largest_) + 1),
                left = draw_below(random, std::max<int64_t>(0, large.image.width - largest_) + 1);
  return cropped(large, {top, left, largest_, largest_}, fill_);
}

void DetectionTransform::recolour(Image& image, base::Random& random) const {
  std::vector<AugmentType> types = {AugmentType::brightness, AugmentType::contrast, AugmentType::color};
  random.shuffle(types);
  for (const AugmentType type : types)
    image = augment(image, type, draw_uniform(random, 1 - options_.colour, 1 + options_.colour), {});
}

void DetectionTransform::normalise(const Image& image, int64_t height, int64_t width, float* out) const {
  std::vector<float> own(static_cast<size_t>(3 * image.height * image.width));
  normaliser_(image, own.data());
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < image.height; ++y)
      std::copy_n(own.data() + (c * image.height + y) * image.width, image.width, out + (c * height + y) * width);
  }
}

}  // namespace mnemo::data
