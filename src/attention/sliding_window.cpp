#include "attention/sliding_window.h"

#include <torch/types.h>

#include <cmath>

#include "attention/compared_rows.h"
#include "attention/key_rows.h"
#include "ops/attention/attention.h"
#include "ops/attention/key_window.h"

namespace mnemo::attention {

SlidingWindow::SlidingWindow(const Options& options, const core::AttentionBuild& build)
    : LinearInValues(build, options),
      window_(options.window_size),
      causal_(build.causal),
      frequencies_(options.frequencies(build.head_dim)) {}

core::CoreAttention::Heads SlidingWindow::run(const core::AttentionInput& input, const core::State& state,
                                              const ops::ReplaceValues& replace) const {
  base::require(!input.table.is_cross(), "sliding_window: cross-attention is not supported; use softmax");
  base::require(causal_ || input.ends, "sliding_window: a bidirectional model requires whole segments");
  core::AttentionInput seen = input;
  // Cached rows beyond the first query's window are not even projected.
  if (causal_ && input.context.defined() && input.context.size(1) >= window_) {
    seen.context = window_ == 1 ? at::Tensor()
                                : input.context.narrow(1, input.context.size(1) - window_ + 1, window_ - 1);
  }
  const auto [q, k, v] = maps_.heads(input.x, key_rows(seen));
  const core::KvState kv = core::extend(state.as<core::KvState>(), k, v);
  const int64_t keys = kv.k.size(2), first = input.table.num_keys() - keys, side = causal_ ? window_ - 1 : window_ / 2;
  const ops::KeyRanges ranges = ops::key_window(input.table.ranges(), side, side, first);
  const layers::AttentionProjections::Heads rows = compared(q, kv, first, frequencies_);
  const at::Tensor o = ops::attention(rows.q, rows.k, ops::replaced(replace, rows.v), {}, ranges,
                                      1.0 / std::sqrt(static_cast<double>(maps_.head_dim)));
  Heads made{maps_.join(o), core::KvState{}, {}, own_rows(input, {q, k, v})};
  const int64_t kept = std::min(keys, window_ - 1);
  if (!input.ends) made.state = core::KvState{kv.k.narrow(2, keys - kept, kept), kv.v.narrow(2, keys - kept, kept)};
  return made;
}

}  // namespace mnemo::attention
