#pragma once

#include <cstdint>

namespace mnemo::ops {

/// Rounds the weights of a panel [in][16] to +-127 steps of the largest of each output, groups of four
/// inputs of an output side by side, as ops::Panels holds int8 and w8a8; an incomplete group is filled up with zeros.
/// scales [16]: a step. Returns false, and leaves both as they were, where a weight is not finite.
bool quantise_panel(const float* panel, int64_t in, int8_t* to, float* scales);

}  // namespace mnemo::ops
