#include "data/images/image_transform.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"
#include "data/images/image_augment.h"

namespace mnemo::data {
namespace {

constexpr int kCropTries = 10, kEraseTries = 10;
constexpr double kMinErased = 0.02, kMaxErased = 1.0 / 3.0, kMinAspect = 0.3;

int64_t below(base::Random& random, int64_t bound) {
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
}

/// Log-uniform between two values.
double draw_ratio(base::Random& random, double low, double high) {
  return std::exp(draw_uniform(random, std::log(low), std::log(high)));
}

int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

Image padded(const Image& image, int64_t border, int64_t top, int64_t left) {
  Image out(image.height, image.width);
  for (int64_t y = 0; y < out.height; ++y) {
    const int64_t from = y + top - border;
    if (from < 0 || from >= image.height) continue;
    const int64_t first = std::max<int64_t>(0, border - left), last = std::min(out.width, image.width + border - left);
    if (first < last) std::copy_n(image.at(from, first + left - border), (last - first) * 3, out.at(y, first));
  }
  return out;
}

}  // namespace

Normaliser::Normaliser(const std::vector<double>& mean, const std::vector<double>& std) {
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 256; ++i) {
      double_[c][i] = (static_cast<double>(i) / 255.0 - mean[c]) / std[c];
      float_[c][i] = static_cast<float>(double_[c][i]);
    }
  }
}

template <class T>
void Normaliser::run(const Image& image, const Tables<T>& tables, T* out) {
  const int64_t pixels = image.height * image.width;
  const uint8_t* bytes = image.bytes.data();
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < 3; ++c) out[c * pixels + i] = tables[static_cast<size_t>(c)][bytes[i * 3 + c]];
  }
}
template void Normaliser::run(const Image&, const Tables<float>&, float*);
template void Normaliser::run(const Image&, const Tables<double>&, double*);

TestCrop TestCrop::of(const ImageTestOptions& options, int64_t height, int64_t width) {
  const auto before = [&](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side) / options.crop_pct));
  };
  TestCrop crop{height,
                width,
                before(height),
                before(width),
                options.crop_mode == ImageTestOptions::CropMode::squash,
                options.interpolation,
                options.resize};
  if (options.resize_size > 0) {
    // resize_size is the length of the rectangle's shorter side; the other is in proportion.
    const int64_t shorter = std::min(height, width);
    crop.resize_height = options.resize_size * height / shorter;
    crop.resize_width = options.resize_size * width / shorter;
  }
  return crop;
}

Image TestCrop::operator()(const Image& image) const {
  if (squash) return resize_center_crop(image, resize_height, resize_width, height, width, interpolation, resizing);
  // The side that needs the larger scale factor decides; for a square crop, this is the shorter side.
  const bool by_height = resize_height * image.width >= resize_width * image.height;
  const int64_t h = by_height ? resize_height : image.height * resize_width / image.width;
  const int64_t w = by_height ? image.width * resize_height / image.height : resize_width;
  return resize_center_crop(image, h, w, height, width, interpolation, resizing);
}

ImageBox draw_crop_box(int64_t height, int64_t width, const std::vector<double>& scale,
                       const std::vector<double>& ratio, base::Random& random) {
  const double area = static_cast<double>(height * width);
  for (int i = 0; i < kCropTries; ++i) {
    const double target = area * draw_uniform(random, scale[0], scale[1]),
                 form = draw_ratio(random, ratio[0], ratio[1]);
    const int64_t w = rounded(std::sqrt(target * form)), h = rounded(std::sqrt(target / form));
    if (w > 0 && w <= width && h > 0 && h <= height)
      return {below(random, height - h + 1), below(random, width - w + 1), h, w};
  }
  const double form = static_cast<double>(width) / static_cast<double>(height);
  int64_t h = height, w = width;
  if (form < ratio[0]) h = std::clamp<int64_t>(rounded(static_cast<double>(width) / ratio[0]), 1, height);
  if (form > ratio[1]) w = std::clamp<int64_t>(rounded(static_cast<double>(height) * ratio[1]), 1, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

ImageBox erase_box(const EraseDraw& draw, int64_t count, int64_t height, int64_t width) {
  const double area = draw.area * static_cast<double>(height * width) / static_cast<double>(count);
  const ImageBox box{0, 0, rounded(std::sqrt(area * draw.aspect)), rounded(std::sqrt(area / draw.aspect))};
  return box.height < height && box.width < width ? box : ImageBox{};
}

ImageTransform::ImageTransform(const ImageOptions& options)
    : augment_(options.augment),
      test_(TestCrop::of(options.test_crop, options.height(), options.width())),
      normalise_(options.mean, options.std) {
  for (size_t c = 0; c < 3; ++c)
    fill_[c] = static_cast<uint8_t>(std::clamp<int64_t>(rounded(options.mean[c] * 255.0), 0, 255));
}

Image ImageTransform::cropped(const Image& image, base::Random& random) const {
  using CropInterpolation = ImageAugmentOptions::CropInterpolation;
  if (augment_.crop == ImageAugmentOptions::Crop::resized) {
    const ImageBox box = draw_crop_box(image.height, image.width, augment_.scale, augment_.ratio, random);
    const bool bilinear = augment_.interpolation == CropInterpolation::bilinear ||
                          (augment_.interpolation == CropInterpolation::random && draw_chance(random, 0.5));
    return resize(image, box, test_.height, test_.width, bilinear ? Interpolation::bilinear : Interpolation::bicubic,
                  test_.resizing);
  }
  Image whole = test_(image);
  if (augment_.crop == ImageAugmentOptions::Crop::none) return whole;
  const int64_t places = 2 * augment_.padding + 1, top = below(random, places), left = below(random, places);
  return padded(whole, augment_.padding, top, left);
}

Image ImageTransform::augmented(const Image& image, base::Random& random) const {
  Image out = cropped(image, random);
  if (draw_chance(random, augment_.flip)) mirror(out);
  return augment_.randaugment.num_ops > 0 ? rand_augment(std::move(out), augment_.randaugment, fill_, random) : out;
}

void ImageTransform::erase(base::Random& random, float* out) const {
  const int64_t h = test_.height, w = test_.width;
  for (int64_t i = 0; i < augment_.erase_count; ++i) {
    for (int attempt = 0; attempt < kEraseTries; ++attempt) {
      const EraseDraw draw{draw_uniform(random, kMinErased, kMaxErased),
                           draw_ratio(random, kMinAspect, 1.0 / kMinAspect)};
      ImageBox box = erase_box(draw, augment_.erase_count, h, w);
      if (box.height == 0 || box.width == 0) continue;
      box.top = below(random, h - box.height + 1);
      box.left = below(random, w - box.width + 1);
      const bool pixel = augment_.erase_mode == ImageAugmentOptions::EraseMode::pixel,
                 constant = augment_.erase_mode == ImageAugmentOptions::EraseMode::constant;
      const auto noise = [&] { return constant ? 0.0F : static_cast<float>(draw_normal(random)); };
      const std::array<float, 3> colour = {noise(), noise(), noise()};
      fill_box(out, h, w, box,
               [&](int64_t c, int64_t, int64_t) { return pixel ? noise() : colour[static_cast<size_t>(c)]; });
      break;
    }
  }
}

void ImageTransform::train(const Image& image, base::Random& random, float* out) const {
  normalise_(augmented(image, random), out);
  if (draw_chance(random, augment_.erase)) erase(random, out);
}

void ImageTransform::measure(const Image& image, float* out) const { normalise_(test_(image), out); }

}  // namespace mnemo::data
