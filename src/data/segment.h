#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::data {

/// One segment of B parallel sequences of T tokens.
///   tokens   [B,T] int64
///   targets  [B,T] int64, the token to predict after each; base::kIgnoreTarget where none is
///   reset    [B] bool, true where a document (or the text) starts with this segment: the row's state starts again
///   valid    [B,T] bool, false for padding, which stands on the right; undefined when all tokens are real
struct TokenSegment {
  at::Tensor tokens, targets, reset, valid;
  int64_t num_targets = 0;  ///< number of targets that are predicted
  at::Tensor pixels = {};   ///< [B,C,H,W] float, normalized: images, instead of tokens (which are then undefined)
  /// [B,1,K]: class probabilities, if targets are mixed or smoothed; targets then hold the labels
  at::Tensor soft_targets = {};
};

}  // namespace mnemo::data
