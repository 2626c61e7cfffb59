#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/images/image.h"
#include "data/images/image_options.h"
#include "data/images/image_resize.h"

namespace mnemo::data {

/// (x / 255 - mean) / std of each channel, as a lookup table.
class Normaliser {
 public:
  Normaliser(const std::vector<double>& mean, const std::vector<double>& std);
  /// out [3,H,W]; float is the rounded double.
  void operator()(const Image& image, float* out) const { run(image, float_, out); }
  void operator()(const Image& image, double* out) const { run(image, double_, out); }

 private:
  template <class T>
  using Tables = std::array<std::array<T, 256>, 3>;
  template <class T>
  static void run(const Image& image, const Tables<T>& tables, T* out);
  Tables<float> float_;
  Tables<double> double_;
};

/// How an image is resized and cropped to height x width for evaluation. "center": the shorter side becomes `side` (for
/// a rectangular crop, both sides become at least those of a rectangle with the same aspect ratio), then the centre is
/// cropped; "squash": both sides are resized.
struct TestCrop {
  int64_t height = 0, width = 0;
  int64_t resize_height = 0, resize_width = 0;
  bool squash = false;
  Interpolation interpolation = Interpolation::bicubic;
  Resizing resizing = Resizing::pillow13;

  /// As in timm: sides of floor(side / crop_pct) before the crop.
  static TestCrop of(const ImageTestOptions& options, int64_t height, int64_t width);
  Image operator()(const Image& image) const;
};

/// The part of a height x width image taken by a random resized crop (Szegedy et al. 2015), drawn like torchvision: ten
/// attempts with a random area and a log-uniform aspect ratio; then the largest centre crop with an allowed aspect
/// ratio.
ImageBox draw_crop_box(int64_t height, int64_t width, const std::vector<double>& scale,
                       const std::vector<double>& ratio, base::Random& random);

/// The random choices for a box of random erasing.
struct EraseDraw {
  double area = 0, aspect = 1;  ///< share of the image; height / width
};
/// Height and width of the box: round(sqrt(area H W / count * aspect)), round(sqrt(area H W / count / aspect)); nothing
/// if it does not fit into the image.
ImageBox erase_box(const EraseDraw& draw, int64_t count, int64_t height, int64_t width);

/// Replaces pixels [3,H,W] in the box by noise(c, y, x), with coordinates relative to the box's corner.
template <class T, class F>
void fill_box(T* pixels, int64_t height, int64_t width, const ImageBox& box, F&& noise) {
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < box.height; ++y) {
      for (int64_t x = 0; x < box.width; ++x)
        pixels[(c * height + box.top + y) * width + box.left + x] = noise(c, y, x);
    }
  }
}

/// Converts bytes to model input. All randomness comes from the given Random, so the transform of an image depends on
/// nothing else.
class ImageTransform {
 public:
  ImageTransform(const ImageOptions& options);

  int64_t height() const { return test_.height; }
  int64_t width() const { return test_.width; }
  int64_t numbers() const { return 3 * height() * width(); }
  /// out [3,H,W].
  void train(const Image& image, base::Random& random, float* out) const;
  void measure(const Image& image, float* out) const;

  /// Only the transforms on bytes: crop, flip and RandAugment.
  Image augmented(const Image& image, base::Random& random) const;

 private:
  Image cropped(const Image& image, base::Random& random) const;
  void erase(base::Random& random, float* out) const;

  ImageAugmentOptions augment_;
  TestCrop test_;
  Normaliser normalise_;
  std::array<uint8_t, 3> fill_;  // the mean, as the fill for pixels from outside the image
};

}  // namespace mnemo::data
