#pragma once

#include <cstdint>

#include "attention/linear_in_values.h"
#include "base/options.h"
#include "core/projected_attention.h"
#include "ops/attention/block_pattern.h"

namespace mnemo::attention {

struct BigBirdOptions : core::ProjectionOptions {
  int64_t block_size = 64;
  int64_t num_random_blocks = 3;
  int64_t seed = 0;
  template <class V>
  void visit(V&& v) {
    v("block_size", block_size, "rows per block", base::range(1, 1 << 20));
    v("num_random_blocks", num_random_blocks,
      "random blocks that each block sees, in addition to the first, the last and its neighbours",
      base::range(0, 1 << 20));
    v("seed", seed, "seed of the random blocks, combined with the layer and block number",
      base::range(0, int64_t{1} << 53));
    ProjectionOptions::visit(v);
  }
};

/// Block-sparse attention with global, window and random blocks (Zaheer et al. 2020, section 2).
///   o = W_o concat_h( softmax(q k^T / sqrt(d)) v ) over the keys in blocks that the query's block sees
///   (ops/attention/block_pattern.h)
/// Bidirectional: the last block attends to all blocks and all attend to it. No state.
class BigBird final : public LinearInValues<core::ProjectedAttention> {
 public:
  using Options = BigBirdOptions;
  /// Throws InputError in a causal model.
  BigBird(const Options& options, const core::AttentionBuild& build);
  core::State initial_state(int64_t) const override { return {}; }
  core::AttentionSupport support() const override { return {false, false, false}; }
  /// Uses this pattern, bool [N,N], instead of a random one, for segments of N blocks.
  void set_draw(const at::Tensor& blocks) { given_ = blocks.to(at::kCPU); }

 private:
  Heads run(const core::AttentionInput& input, const core::State& state,
            const ops::ReplaceValues& replace) const override;
  at::Tensor blocks(int64_t rows) const;

  Options options_;
  uint64_t layer_;
  at::Tensor given_;
};

}  // namespace mnemo::attention
