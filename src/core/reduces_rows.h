#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// What an attention may offer beside CoreAttention: its keys and values come from fewer rows than an image has, so
/// rows of other images can be put beside them (AttentionInput.context) once they are as few.
class ReducesRows {
 public:
  virtual ~ReducesRows() = default;
  /// The rows [B,h*w,D] of images as keys and values are made of them, [B,K,D].
  virtual at::Tensor reduced(const at::Tensor& rows, Grid grid) const = 0;
};

}  // namespace mnemo::core
