#pragma once

#include <cstdint>

#include "data/detection/coco.h"

namespace mnemo::data {

/// Treatment of boxes that are empty or not inside their image.
enum class OddBoxes {
  clip,   ///< cut to the image; dropped if nothing is left
  refuse  ///< an error
};

/// Number of objects by treatment.
struct BoxCounts {
  int64_t kept = 0, clipped = 0;  ///< clipped ones are kept too
  int64_t empty = 0;              ///< dropped: width or height not positive, or too small for float32
  int64_t outside = 0;            ///< dropped: nothing of it is in the image
  int64_t images = 0;             ///< dropped: images without objects
};

/// Cuts, drops or refuses boxes of a set for training. keep_empty: keep images without objects that are no crowds.
/// Throws InputError with the first odd box and their number, if they are refused.
BoxCounts clean_boxes(CocoSet& set, OddBoxes odd, bool keep_empty);

}  // namespace mnemo::data
