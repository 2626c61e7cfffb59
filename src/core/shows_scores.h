#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// Implemented by attentions that can return their scores before the softmax.
class ShowsScores {
 public:
  virtual ~ShowsScores() = default;
  /// [B,H,Q,K] by definition, 0 where the table does not allow it.
  virtual at::Tensor scores(const AttentionInput& input, const State& state) const = 0;
};

}  // namespace mnemo::core
