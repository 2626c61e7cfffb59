#pragma once

#include "attention/key_value_attention.h"
#include "base/options.h"
#include "ops/attention/relative_buckets.h"

namespace mnemo::attention {

struct RelativeBucketsOptions {
  int64_t num_buckets = 32;
  int64_t max_distance = 128;
  bool scaled = false;
  bool bias = false;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("num_buckets", num_buckets, "buckets of distances; an encoder uses half of them for keys on the right",
      base::range(2, 1 << 16));
    v("max_distance", max_distance, "this and longer distances share the last bucket", base::range(2, 1 << 24));
    v("scaled", scaled, "divide q k^T by the square root of the head width (T5 does not)");
    v("bias", bias, "use a bias in the q, k, v and o projections");
    v("dropout", dropout, "dropout of the attention weights (on CUDA, training then stores all of them)",
      base::half_open_range(0.0, 1.0));
  }
};

/// Attention with a learned bias for every bucket of distances (Raffel et al. 2020, section 2.1).
///   s(i,j) = q_i . k_j + table[bucket(i - j), h]        o = W_o concat_h( softmax_j(s, table) v_j )
/// q_i . k_j is divided by sqrt(d) with `scaled`. Distances are counted over all rows [contexts; rows]. One table
/// `relative_bias` [num_buckets,H] is shared by all layers. State: kv_cache, only while a segment is open.
class RelativeBuckets final : public KeyValueAttention {
 public:
  using Options = RelativeBucketsOptions;
  /// Throws InputError for numbers of buckets that do not fit the direction of the model.
  RelativeBuckets(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  double scale() const;
  /// Position scores as ops::attention takes them, before its scale.
  at::Tensor positions(int64_t queries, int64_t keys, bool looks_right) const;

  ops::RelativeBuckets buckets_;
  bool scaled_;
  double dropout_;
  at::Tensor table_;  // [n,H]
};

}  // namespace mnemo::attention
