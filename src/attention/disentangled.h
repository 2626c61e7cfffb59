#pragma once

#include "base/options.h"
#include "core/projected_attention.h"
#include "ops/attention/disentangled.h"

namespace mnemo::attention {

struct DisentangledOptions {
  int64_t num_buckets = 256;
  int64_t max_distance = 512;
  bool c2p = true;
  bool p2c = true;
  bool share_att_key = true;
  bool norm_positions = true;
  double norm_eps = 1e-7;
  bool bias = true;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("num_buckets", num_buckets,
      "rows of the table of relative positions on each side (position_buckets); 0: a row for each distance up to "
      "max_distance",
      base::range(0, 1 << 16));
    v("max_distance", max_distance, "longer distances share the last row", base::range(1, 1 << 24));
    v("c2p", c2p, "content to position: the query with the key of the relative position");
    v("p2c", p2c, "position to content: the key with the query of the relative position");
    v("share_att_key", share_att_key,
      "project relative positions by the layer's own q and k (DeBERTa v3); false: by maps of their own");
    v("norm_positions", norm_positions, "a layer norm on the table of relative positions");
    v("norm_eps", norm_eps, "epsilon of that norm", base::positive());
    v("bias", bias, "use a bias in all projections");
    v("dropout", dropout, "dropout of the attention weights", base::half_open_range(0.0, 1.0));
  }
};

/// Disentangled attention (He et al. 2021, eq. 2 to 4; v3: He et al. 2023): contents and relative positions have
/// vectors of their own.
///   s(i,j) = ( q_i . k_j + q_i . K_R[r(i-j)] + k_j . Q_R[r(i-j)] ) / sqrt(d (1 + number of position terms))
///   o = W_o concat_h( softmax_j(s, table) v_j ),  K_R = W_k R, Q_R = W_q R, R = norm(rel_embeddings)
/// r as in ops::DistanceRowsOfTable. `rel_embeddings` [2 span,D] and its norm are shared by all layers. Bidirectional
/// models only. No state.
class Disentangled final : public core::ProjectedAttention {
 public:
  using Options = DisentangledOptions;
  /// Throws InputError in a causal model, and for numbers of buckets that do not fit max_distance.
  Disentangled(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t) const override { return {}; }
  core::AttentionSupport support() const override { return {.contexts = false}; }
  const layers::AttentionProjections* projections() const override { return &maps_; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  /// The weights [B,H,T,T], and q, k, v of the rows.
  at::Tensor weights(const core::AttentionInput& input, const layers::AttentionProjections::Heads& rows) const;
  /// [R,D] through a map, by head: [H,R,d].
  at::Tensor project_positions(const layers::Linear& map, const at::Tensor& positions) const;

  Options options_;
  ops::DistanceRowsOfTable distances_;
  layers::Linear position_k_, position_q_;  ///< undefined weights: the maps of the contents
  at::Tensor table_;                        ///< [2 span,D]
  layers::LayerNorm norm_;                  ///< undefined weight: none
};

}  // namespace mnemo::attention
