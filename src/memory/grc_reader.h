#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/reads_heads.h"
#include "layers/grid_reduction.h"
#include "layers/parts.h"
#include "layers/relative_position_bias.h"
#include "memory/grc_options.h"
#include "ops/weights_from_outputs.h"

namespace mnemo::memory {

/// The branch that reads the gated recurrent cache (Zhang et al. 2024, eq. 3).
///   m_h = softmax(q_h k_h^T / sqrt(C/H) + bias_h) v_h,  q of the first C channels of the rows, k and v of the cache
/// If the attention reduces its keys, k and v come from the cache on its grid, reduced in the same way. With windows,
/// bias is a separate table, indexed by the positions of query and cache row in the window; otherwise there is none. B
/// sequences, H heads, T rows, N rows of the cache, C its channels.
class GrcReader {
 public:
  GrcReader() = default;
  /// `same`: the core that reads the cache instead of softmax, or null. Parameters q, k, v, o (authors), widen, sr,
  /// sr_norm, relative_position_bias_table under the scope. Throws InputError for a cache that the layout does not
  /// support.
  GrcReader(const GrcOptions& options, const core::AttentionBuild& build, const core::ImageLayout& image,
            int64_t channels, const layers::Scope& scope, const core::ReadsHeads* same);
  /// x [B,T,C], cache [B,N,C] or [1,N,C]: one for all. Returns [B,H,T,C/H].
  at::Tensor heads(const at::Tensor& x, const at::Tensor& cache, core::Grid grid,
                   const ops::ReplaceValues& replace = {}) const;
  /// Heads concatenated, and projected by `o` if the variant has it and by `widen` if that option has it: [B,T,C], or
  /// [B,T,H*d] if widened.
  at::Tensor project(const at::Tensor& heads) const;
  bool widens() const { return widen_.weight.defined(); }
  /// Whether it computes the softmax of the formula, by whatever code.
  bool reads_by_softmax() const { return same_ == nullptr || same_->reads_by_softmax(); }
  const layers::Linear& q() const { return q_; }
  const layers::Linear& k() const { return k_; }
  const layers::Linear& v() const { return v_; }

 private:
  at::Tensor split(const at::Tensor& rows) const { return rows.unflatten(-1, {num_heads_, -1}).transpose(1, 2); }
  at::Tensor position_bias(core::Grid grid) const;

  int64_t num_heads_ = 1;
  const core::ReadsHeads* same_ = nullptr;
  layers::Linear q_, k_, v_, o_, widen_;
  core::Grid cache_grid_;  // of the cache if it is reduced, or of the window
  layers::GridReduction reduction_;
  layers::RelativePositionBias position_;
};

}  // namespace mnemo::memory
