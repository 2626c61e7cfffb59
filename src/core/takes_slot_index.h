#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// Implemented by attentions that assign each token to one memory slot: the caller may choose the slots.
class TakesSlotIndex {
 public:
  virtual ~TakesSlotIndex() = default;
  /// forward() with the slot of each key, slot_index [B,S] int64. Throws InputError if the control chooses slots in
  /// another way.
  virtual AttentionResult forward_assigned(const AttentionInput& input, const State& state,
                                           const at::Tensor& slot_index) const = 0;
};

}  // namespace mnemo::core
