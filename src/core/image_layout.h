#pragma once

#include <cstdint>

#include "core/grid.h"

namespace mnemo::core {

/// Image-specific information about an attention, for memories around it; complements AttentionBuild.
struct ImageLayout {
  Grid grid = {};            ///< grid of an image of the model's size, or of one window
  int64_t class_tokens = 0;  ///< rows before the grid
  int64_t
      sr_ratio = 0;  ///< reduction of keys and values in both directions; 1: none here; 0: in no layer of this backbone
  int64_t pool = 0;  ///< keys and values are averaged to pool x pool rows; 0: no pooling
  bool windows = false;  ///< the batch consists of windows, and scores have relative position biases
  bool given() const { return grid.size() > 0; }
  bool reduces() const { return sr_ratio > 1 || pool > 0; }
  int64_t rows() const { return class_tokens + grid.size(); }
};

}  // namespace mnemo::core
