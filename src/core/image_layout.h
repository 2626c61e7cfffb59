#pragma once

#include <cstdint>

#include "core/attention.h"

namespace mnemo::core {

/// What an attention of an image backbone is built for, beside AttentionBuild: a memory around it has to know.
struct ImageLayout {
  Grid grid = {};            ///< the rows of an image of the model's own size; inside windows, those of one window
  int64_t class_tokens = 0;  ///< rows in front of them
  int64_t sr_ratio = 0;  ///< keys and values are reduced by it, both ways; 1: not here; 0: in no layer of this backbone
  int64_t pool = 0;      ///< keys and values are averaged to pool x pool rows; 0: they are not
  bool windows = false;  ///< the batch is made of windows, and scores have biases by position
  bool given() const { return grid.size() > 0; }
  bool reduces() const { return sr_ratio > 1 || pool > 0; }
  int64_t rows() const { return class_tokens + grid.size(); }
};

}  // namespace mnemo::core
