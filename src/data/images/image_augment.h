#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/random.h"
#include "data/images/image.h"
#include "data/images/image_resize.h"

namespace mnemo::data {

/// The operations of RandAugment (Cubuk et al. 2020) with timm's increasing strength, "rand-...-inc1"; byte for byte
/// equal to timm.
enum class AugmentType {
  auto_contrast,
  equalize,
  invert,
  rotate,
  posterize,
  solarize,
  solarize_add,
  color,
  contrast,
  brightness,
  sharpness,
  shear_x,
  shear_y,
  translate_x,
  translate_y
};
inline constexpr int kNumAugmentTypes = 15;

/// An operation's argument at level L (0 to 10) with a sign of +1 or -1:
///   posterize     keeps 4 - int(0.4 L) bits
///   solarize      256 - min(256, int(25.6 L)): inverts values from this threshold on
///   solarize_add  min(128, int(11 L)), added to values below 128
///   color, contrast, brightness, sharpness  max(0.1, 1 +- 0.09 L)
///   rotate        +-3 L degrees, counter-clockwise
///   shear_x, shear_y          +-0.03 L
///   translate_x, translate_y  +-0.045 L of the width or height
/// 0 for the three operations without an argument.
double augment_argument(AugmentType type, double level, int sign);

/// Additional parameters of an operation, used only by geometric ones.
struct AugmentGeometry {
  Interpolation interpolation = Interpolation::bilinear;  ///< bilinear or bicubic; bicubic here has a = -1
  std::array<uint8_t, 3> fill = {};                       ///< fill for pixels from outside the image
};

Image augment(const Image& image, AugmentType type, double argument, const AugmentGeometry& geometry);

/// RandAugment in training: operations are drawn with replacement, each applied with some probability, with a random
/// magnitude within 0 to 10 and a random sign, bilinear or bicubic at random.
struct RandAugmentOptions;
Image rand_augment(Image image, const RandAugmentOptions& options, std::array<uint8_t, 3> fill, base::Random& random);

}  // namespace mnemo::data
