#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "data/images/image_augment.h"
#include "data/images/image_resize.h"

namespace mnemo::test {

/// The interpolation that a golden file names.
inline data::Interpolation interpolation_of(std::string_view name) {
  if (name == "box") return data::Interpolation::box;
  if (name == "bilinear") return data::Interpolation::bilinear;
  base::require(name == "bicubic", "unknown interpolation '{}'", name);
  return data::Interpolation::bicubic;
}

/// RandAugment's operation by timm's name.
inline data::AugmentType augment_type_of(std::string_view name) {
  constexpr std::array<std::string_view, data::kNumAugmentTypes> kNames = {"AutoContrast",
                                                                           "Equalize",
                                                                           "Invert",
                                                                           "Rotate",
                                                                           "PosterizeIncreasing",
                                                                           "SolarizeIncreasing",
                                                                           "SolarizeAdd",
                                                                           "ColorIncreasing",
                                                                           "ContrastIncreasing",
                                                                           "BrightnessIncreasing",
                                                                           "SharpnessIncreasing",
                                                                           "ShearX",
                                                                           "ShearY",
                                                                           "TranslateXRel",
                                                                           "TranslateYRel"};
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  base::require(found != kNames.end(), "unknown operation '{}' of RandAugment", name);
  return static_cast<data::AugmentType>(found - kNames.begin());
}

}  // namespace mnemo::test
