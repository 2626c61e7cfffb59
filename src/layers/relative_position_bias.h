#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/parameters.h"

namespace mnemo::layers {

/// A learned bias of the attention scores for every head and every pair of positions inside a window (Liu et al. 2021,
/// eq. 4).
///   bias[h,i,j] = table[index(i,j),h]  (ops::window_position_index)
/// Name "relative_position_bias_table" [(2wh-1)(2ww-1),H] under the scope; wh x ww the largest window.
struct RelativePositionBias {
  RelativePositionBias() = default;
  RelativePositionBias(const Scope& scope, int64_t window_height, int64_t window_width, int64_t num_heads, double std);
  /// [H,A,A] for a window of height * width = A. Throws InputError if it is larger than the table's.
  at::Tensor operator()(int64_t height, int64_t width) const;

  at::Tensor table;
  int64_t window_height = 0, window_width = 0;
};

}  // namespace mnemo::layers
