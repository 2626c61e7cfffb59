#pragma once

#include <cstdint>

namespace mnemo::heads {

struct DetectorParts;

/// Sides of a detector's images are padded to multiples of this, so that every map halves evenly: the stride of the
/// last stage that it reads, or of the last map of a simple pyramid. stride: of the backbone's first stage.
int64_t sides_divisor(const DetectorParts& parts, int64_t stride);

}  // namespace mnemo::heads
