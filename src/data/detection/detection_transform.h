#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/detection/annotated_image.h"
#include "data/images/image_transform.h"

namespace mnemo::data {

/// How annotated images become the input of a detector.
struct DetectionTransformOptions {
  std::vector<int64_t> sides = {800};  ///< pixels of the shorter side: one at random in training, the largest otherwise
  int64_t longest = 1333;              ///< at most, of the longer side
  DetectionResize resize = DetectionResize::pillow;
  double flip = 0.5;    ///< probability of a horizontal flip
  double colour = 0.0;  ///< brightness, contrast and colour are multiplied by 1 - this to 1 + this
  /// Large-scale jitter (Ghiasi et al. 2021): scales at random between the first two, after which a square of the
  /// largest side is cut out, or filled with the mean; empty: none.
  std::vector<double> jitter = {};
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
};

class DetectionTransform {
 public:
  /// Throws InputError for options that no image can have.
  explicit DetectionTransform(const DetectionTransformOptions& options);
  /// Depends on nothing but the arguments.
  AnnotatedImage train(const AnnotatedImage& image, base::Random& random) const;
  AnnotatedImage measure(const AnnotatedImage& image) const;
  /// Writes an image into the upper left corner of out [3,height,width].
  void normalise(const Image& image, int64_t height, int64_t width, float* out) const;

 private:
  AnnotatedImage at_side(const AnnotatedImage& image, int64_t side) const;
  Interpolation interpolation() const;
  AnnotatedImage jittered(const AnnotatedImage& image, base::Random& random) const;
  void recolour(Image& image, base::Random& random) const;

  DetectionTransformOptions options_;
  int64_t largest_;
  std::array<uint8_t, 3> fill_;  // the mean
  Normaliser normaliser_;
};

}  // namespace mnemo::data
