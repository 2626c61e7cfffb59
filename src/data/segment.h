#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::data {

/// One segment of B parallel sequences of T tokens.
///   tokens   [B,T] int64
///   targets  [B,T] int64, the token to predict after each; base::kIgnoreTarget where there is none
///   reset    [B] bool, true if a document (or the text) starts with this segment: the row's state is reset
///   valid    [B,T] bool, false for padding, which is on the right, of pairs on either side; undefined = no padding
struct TokenSegment {
  at::Tensor tokens, targets, reset, valid;
  int64_t num_targets = 0;  ///< number of targets that are not ignored
  at::Tensor pixels = {};   ///< [B,C,H,W] float, normalised: images, instead of tokens (which are then undefined)
  /// [B,1,K]: class probabilities, if targets are mixed or smoothed; targets then contain the labels
  at::Tensor soft_targets = {};
  /// Translation: the source [B,S] int64 and which of it is real, [B,S] bool; tokens and targets are the target's.
  at::Tensor source = {}, source_valid = {};
  at::Tensor token_types = {};   ///< [B,T] int64: the text of a pair that a token is of; undefined = all 0
  double label_smoothing = 0.0;  ///< weight of all other tokens together, as ops::label_smoothing
};

}  // namespace mnemo::data
