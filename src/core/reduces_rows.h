#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// Implemented by attentions whose keys and values are reduced rows of an image, so that rows of other images can be
/// used as context (AttentionInput.context) after the same reduction.
class ReducesRows {
 public:
  virtual ~ReducesRows() = default;
  /// Reduces the rows [B,h*w,D] of images to those from which keys and values are computed, [B,K,D].
  virtual at::Tensor reduced(const at::Tensor& rows, Grid grid) const = 0;
};

}  // namespace mnemo::core
