#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/random.h"
#include "data/images/image.h"
#include "data/images/image_resize.h"

namespace mnemo::data {

/// The operations of RandAugment (Cubuk et al. 2020) in the list that grows with the level, "rand-...-inc1", byte for
/// byte as timm has them.
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

/// timm's name of an operation: "PosterizeIncreasing".
std::string_view augment_name(AugmentType type);
/// Throws InputError "WHERE: ..." for an unknown name.
AugmentType augment_type_of(std::string_view name, std::string_view where);

/// An operation's argument at level L (0 to 10) with a sign of +1 or -1:
///   posterize      4 - int(0.4 L) bits that stay         solarize    256 - min(256, int(25.6 L)): values from there on
///   are inverted
///   solarize_add   min(128, int(11 L)), added below 128  color, contrast, brightness, sharpness   max(0.1, 1 +- 0.09
///   L)
///   rotate         +-3 L degrees, counter-clockwise      shear_x, shear_y   +-0.03 L             translate_x,
///   translate_y   +-0.045 L of a side
/// 0 for the three that have none.
double augment_argument(AugmentType type, double level, int sign);

/// What an operation needs beside its argument; geometric ones alone do.
struct AugmentGeometry {
  Interpolation interpolation = Interpolation::bilinear;  ///< bilinear or bicubic; bicubic here has a = -1
  std::array<uint8_t, 3> fill = {};                       ///< what comes in from outside
};

Image augment(const Image& image, AugmentType type, double argument, const AugmentGeometry& geometry);

/// RandAugment in training: operations drawn with replacement, each done or not by chance, at a level drawn within 0 to
/// 10, with either sign, bilinear or bicubic at random.
struct RandAugmentOptions;
Image rand_augment(Image image, const RandAugmentOptions& options, std::array<uint8_t, 3> fill, base::Random& random);

}  // namespace mnemo::data
