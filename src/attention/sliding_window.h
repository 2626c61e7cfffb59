#pragma once

#include <vector>

#include "attention/key_value_attention.h"
#include "attention/linear_in_values.h"
#include "base/options.h"

namespace mnemo::attention {

struct SlidingWindowOptions : core::GroupedProjectionOptions {
  int64_t window_size = 64;
  template <class V>
  void visit(V&& v) {
    v("window_size", window_size,
      "number of rows that a query sees: itself and the rows before it; in a bidirectional model, half on each side",
      base::range(1, 1 << 24));
    GroupedProjectionOptions::visit(v);
  }
};

/// Softmax attention within a window over rows.
///   o = W_o concat_h( softmax(q k^T / sqrt(d)) v ) over the keys that the table allows and, with p(i,j) = i + M - j,
///   causal: |p| < w (the table leaves 0 <= p);  otherwise |p| <= floor(w/2)
/// Rows of caches and memories count like tokens. With rotary positions, q and k are turned by their row's number in
/// [context; rows of the segment]. A query without any key gets zeros before W_o. State: kv_cache, only while a segment
/// is open, at most w - 1 rows, keys as they are before they are turned. The window extends into earlier segments only
/// with a segment cache.
class SlidingWindow final : public LinearInValues<KeyValueAttention> {
 public:
  using Options = SlidingWindowOptions;
  SlidingWindow(const Options& options, const core::AttentionBuild& build);
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;

 private:
  Heads run(const core::AttentionInput& input, const core::State& state,
            const ops::ReplaceValues& replace) const override;
  int64_t window_;
  bool causal_;
  std::vector<double> frequencies_;  ///< of rotary positions; empty: none
};

}  // namespace mnemo::attention
