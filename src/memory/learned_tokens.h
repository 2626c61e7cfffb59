#pragma once

#include <ATen/core/Tensor.h>

#include "core/memory_build.h"

namespace mnemo::memory {

/// How learned rows start: each by itself, or one row repeated.
enum class TokenInit { independent, repeated };

/// Learned rows [m,D], the parameter "tokens" of a memory: its value before a sequence's first segment.
class LearnedTokens {
 public:
  /// Initialised from N(0, init_std).
  LearnedTokens(const core::MemoryBuild& build, int64_t count, TokenInit init, double init_std)
      : rows_(build.scope.add("tokens", {count, build.dim},
                              init == TokenInit::repeated ? one_row(init_std) : layers::normal(init_std),
                              layers::ParameterKind::memory)) {}
  /// The rows repeated for every sequence, [B,m,D], a view.
  at::Tensor for_batch(int64_t batch) const { return rows_.unsqueeze(0).expand({batch, -1, -1}); }

 private:
  static layers::Initialiser one_row(double std) {
    return [std](at::Tensor& rows, at::Generator& generator) {
      rows.copy_(rows.new_empty({1, rows.size(1)}).normal_(0.0, std, generator).expand_as(rows));
    };
  }

  at::Tensor rows_;
};

}  // namespace mnemo::memory
