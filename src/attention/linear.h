#pragma once

#include <optional>
#include <string>

#include "attention/linear_in_values.h"
#include "base/options.h"
#include "core/projected_attention.h"
#include "core/reads_heads.h"
#include "ops/attention/linear_attention.h"

namespace mnemo::attention {

struct LinearOptions : core::GroupedProjectionOptions {
  enum class FeatureMap { elu, t2r, rfa };
  enum class Variant { paper, authors };
  enum class Redraw { never, sequence };
  FeatureMap feature_map = FeatureMap::elu;
  std::optional<int64_t> num_features;
  std::optional<double> eps;
  Variant variant = Variant::paper;
  std::optional<double> tau;
  std::optional<int64_t> seed;
  Redraw redraw = Redraw::never;
  bool gate = false;
  base::Depth bptt_depth = base::Depth::all();
  template <class V>
  void visit(V&& v) {
    v("feature_map", feature_map,
      "elu: elu(x) + 1; t2r: relu of a learned projection; rfa: sines and cosines of random projections",
      base::one_of("elu", "t2r", "rfa"));
    v("num_features", num_features,
      "t2r: number of features; rfa: number of projections, each with a sine and a cosine; unset: 32",
      base::range(1, 1 << 16));
    v("eps", eps, "elu, t2r: added to the denominator; unset: 1e-6", base::positive());
    v("variant", variant, "rfa: features and normalization as in the paper, or as in the authors' code",
      base::one_of("paper", "authors"));
    v("tau", tau, "rfa: divisor of the random projections; unset: 1", base::positive());
    v("seed", seed, "rfa: seed of the random projections, combined with the layer number; unset: 0",
      base::range(0, int64_t{1} << 53));
    v("redraw", redraw,
      "rfa: when the random projections are redrawn in training: never (evaluation's), or for every sequence",
      base::one_of("never", "sequence"));
    v("gate", gate, "use a forget gate per head (causal models only)");
    ProjectionOptions::visit(v);
    v("num_kv_heads", num_kv_heads,
      "heads of keys and values, a divisor of num_heads: each is read by several query heads (grouped queries); unset: "
      "num_heads",
      base::range(1, 1 << 10));
    v("rotary", rotary, "rotary positions of the features of queries and keys; unset: none");
    v("bptt_depth", bptt_depth,
      "causal models: number of segment boundaries that gradients cross: 0, 1, ... or \"full\"");
  }
  void validate(const base::Where& where) const;
};

/// Running sums of one layer (ops/attention/linear_attention.h): with rotary positions s is kept turned back, so that
/// the row to come has number 0 (core/rotary.h). s [B,H,f,d], z [B,H,f]; draw int64 [B]: what its projections are drawn
/// from, with redraw (core/draws.h).
struct LinearState {
  at::Tensor s, z;
  at::Tensor draw = {};
  template <class F>
  void visit(F&& f) {
    f("s", s, "B H f d");
    f("z", z, "B H f");
    f("draw", draw, "B");
  }
};

struct DecodeFeatures;

/// Linear attention with feature maps of queries and keys: ELU (Katharopoulos et al. 2020), T2R (Kasai et al. 2021),
/// RFA (Peng et al. 2021).
///   o_t = S_t^T f(q_t) / norm(f(q_t).z_t), S_t = g_t S_{t-1} + (1 - g_t) f(k_t) v_t^T, z_t likewise (no gate: both
///   factors 1);  o = W_o concat_h(o_t)
/// Rotary positions turn f(q) and f(k) in the numerator, not in the divisor (Su et al. 2021, eq. 19).
/// No 1/sqrt(d). Padding has f(k) = 0 and does not affect the gate. Causal models carry (S, z) exactly from segment to
/// segment.
class Linear final : public LinearInValues<core::ProjectedAttention>, public core::ReadsHeads {
 public:
  using Options = LinearOptions;
  /// Throws InputError for a gate in a bidirectional model.
  Linear(const Options& options, const core::AttentionBuild& build);
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  core::State history(const core::AttentionInput& input, const core::State& state,
                      const core::State& history) const override;
  core::State initial_state(int64_t batch) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  std::unique_ptr<core::DecodeCross> cross_decoder(const core::DecodeBuild& build) const override;
  core::AttentionSupport support() const override {
    return {.tables = false, .contexts = false, .keeps_state = causal_, .cross = !causal_ && frequencies_.empty()};
  }
  /// Without the turn of rotary positions, as read() is.
  const layers::AttentionProjections* projections() const override { return &maps_; }
  int64_t bptt_depth(std::string_view) const override {
    return options_.bptt_depth.full ? -1 : options_.bptt_depth.value;
  }
  at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  void require_readable(int64_t head_dim, int64_t keys) const override;
  const core::ReadsHeads* reads_heads() const override { return this; }
  /// rfa: replaces the random projections, [H,m,d]. Throws InputError for another shape.
  void set_draw(const at::Tensor& random);

 private:
  Heads run(const core::AttentionInput& input, const core::State& state,
            const ops::ReplaceValues& replace) const override;
  at::Tensor features(const at::Tensor& x, const at::Tensor& weight) const;
  DecodeFeatures decode_features() const;
  bool redraws() const { return options_.redraw != Options::Redraw::never; }
  /// rfa: random projections [H,m,d] of one draw, float64.
  at::Tensor random_of(int64_t draw) const;
  /// rfa: W of the features [H,m,d], or with draws [B] one for each sequence [B,H,m,d]; otherwise undefined.
  at::Tensor projection(const at::Tensor& draws) const;

  Options options_;
  bool causal_;
  int64_t num_features_;              // f
  std::vector<double> frequencies_;   // of rotary positions; empty: none
  at::Tensor weight_, feature_bias_;  // t2r [H,f,d], [H,f]
  at::Tensor sigma_, random_;         // rfa [H,1,d], float64 [H,m,d] of evaluation's draw
  int64_t layer_;
  at::Tensor gate_weight_, gate_bias_;  // [H,D], [H]
  ops::LinearNormaliser normaliser_;
};

}  // namespace mnemo::attention
