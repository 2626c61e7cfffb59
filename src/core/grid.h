#pragma once

#include <cstdint>

namespace mnemo::core {

/// The grid of an image: the last height * width rows of a segment, row by row, after the class tokens.
struct Grid {
  int64_t height = 0, width = 0;  ///< 0: no image
  int64_t size() const { return height * width; }
};

}  // namespace mnemo::core
