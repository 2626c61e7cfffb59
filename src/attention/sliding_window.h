#pragma once

#include <optional>
#include <vector>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/rotary.h"
#include "layers/parts.h"
#include "ops/weights_from_outputs.h"

namespace mnemo::attention {

struct SlidingWindowOptions {
  int64_t window_size = 64;
  bool bias = true;
  std::optional<bool> qkv_bias;
  std::optional<int64_t> num_kv_heads;
  std::optional<core::RotaryOptions> rotary;
  template <class V>
  void visit(V&& v) {
    v("window_size", window_size,
      "number of rows that a query sees: itself and the rows before it; in a bidirectional model, half on each side",
      base::range(1, 1 << 24));
    v("bias", bias, "use a bias in the q, k, v and o projections");
    v("qkv_bias", qkv_bias,
      "use a bias in the q, k and v projections; `bias` then only applies to o; unset: same as `bias`");
    v("num_kv_heads", num_kv_heads,
      "heads of keys and values, a divisor of num_heads: each is read by several query heads (grouped queries); unset: "
      "num_heads",
      base::range(1, 1 << 10));
    v("rotary", rotary, "rotary positions of queries and keys; unset: none");
  }
};

/// Softmax attention within a window over rows.
///   o = W_o concat_h( softmax(q k^T / sqrt(d)) v ) over the keys that the table allows and, with p(i,j) = i + M - j,
///   causal: |p| < w (the table leaves 0 <= p);  otherwise |p| <= floor(w/2)
/// Rows of caches and memories count like tokens. With rotary positions, q and k are turned by their row's number in
/// [context; rows of the segment]. A query without any key gets zeros before W_o. State: kv_cache, only while a segment
/// is open, at most w - 1 rows, keys as they are before they are turned. The window extends into earlier segments only
/// with a segment cache.
class SlidingWindow final : public core::CoreAttention {
 public:
  using Options = SlidingWindowOptions;
  SlidingWindow(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override {
    return run(input, state, {});
  }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  at::Tensor project(const at::Tensor& heads) const override { return maps_.o(heads); }
  core::State initial_state(int64_t batch) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  const layers::AttentionProjections* projections() const override { return &maps_; }

 private:
  Heads run(const core::AttentionInput& input, const core::State& state, const ops::ReplaceValues& replace) const;
  int64_t window_;
  bool causal_;
  layers::AttentionProjections maps_;
  std::vector<double> frequencies_;  ///< of rotary positions; empty: none
};

}  // namespace mnemo::attention
