#include "attention/bigbird.h"

#include <torch/types.h>

#include <cmath>

#include "attention/key_rows.h"
#include "ops/attention/attention.h"

namespace mnemo::attention {

BigBird::BigBird(const Options& options, const core::AttentionBuild& build)
    : LinearInValues(build, options), options_(options), layer_(static_cast<uint64_t>(build.layer_number)) {
  base::require(
      !build.causal,
      "bigbird: every row sees the last block, so it is not causal; use sliding_window or abc in a causal model");
}

at::Tensor BigBird::blocks(int64_t rows) const {
  const int64_t count = (rows + options_.block_size - 1) / options_.block_size;
  if (!given_.defined())
    return ops::bigbird_blocks(count, options_.num_random_blocks, static_cast<uint64_t>(options_.seed), layer_);
  base::require(given_.sizes() == at::IntArrayRef({count, count}),
                "bigbird: expected a pattern of {} by {} blocks for {} rows, found {}", count, count, rows,
                c10::str(given_.sizes()));
  return given_;
}

core::CoreAttention::Heads BigBird::run(const core::AttentionInput& input, const core::State& state,
                                        const ops::ReplaceValues& replace) const {
  base::require(!input.table.is_cross(), "bigbird: supports self-attention only; use softmax for cross-attention");
  base::require(input.ends && input.table.num_context() == 0, "bigbird: expected a whole segment and no other rows");
  ops::KeyRanges ranges = ops::block_ranges(blocks(input.x.size(1)), options_.block_size, input.x.size(1));
  ranges.valid = plain_validity(input.table, false, "bigbird");
  const auto [q, k, v] = maps_.heads(input.x, input.x);
  return {maps_.join(ops::attention(q, k, ops::replaced(replace, v), {}, ranges,
                                    1.0 / std::sqrt(static_cast<double>(maps_.head_dim)))),
          state};
}

}  // namespace mnemo::attention
