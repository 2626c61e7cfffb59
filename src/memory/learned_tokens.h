#pragma once

#include <ATen/core/Tensor.h>

#include "core/memory_build.h"

namespace mnemo::memory {

/// Learned rows [m,D], the parameter "tokens" of a memory, as they stand before a sequence's first segment.
class LearnedTokens {
 public:
  /// They start as N(0, init_std).
  LearnedTokens(const core::MemoryBuild& build, int64_t count, double init_std)
      : rows_(build.scope.add("tokens", {count, build.dim}, layers::normal(init_std), layers::ParameterKind::memory)) {}
  /// The same rows for every sequence, [B,m,D], a view.
  at::Tensor for_batch(int64_t batch) const { return rows_.unsqueeze(0).expand({batch, -1, -1}); }

 private:
  at::Tensor rows_;
};

}  // namespace mnemo::memory
