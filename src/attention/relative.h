#pragma once

#include <optional>
#include <string>

#include "attention/key_value_attention.h"
#include "base/options.h"
#include "ops/attention/attention.h"

namespace mnemo::attention {

struct RelativeOptions {
  enum class Shift { signed_, faithful };
  Shift rel_shift = Shift::signed_;
  bool bias = false;
  bool shared_uv = true;
  int64_t clamp_len = 0;
  std::optional<int64_t> eval_clamp_len;
  double dropout = 0.0;
  double position_dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("rel_shift", rel_shift,
      "distance to keys on the right of the query: signed, or faithful to the shift of the authors' code",
      base::one_of("signed", "faithful"));
    v("bias", bias, "use a bias in the q, k, v and o projections; r never has one");
    v("shared_uv", shared_uv, "share the biases u and v across layers");
    v("clamp_len", clamp_len, "maximum distance in tokens; larger ones are clamped; 0: no limit",
      base::range(0, 1 << 24));
    v("eval_clamp_len", eval_clamp_len, "clamp_len in evaluation; unset: same as clamp_len", base::range(0, 1 << 24));
    v("dropout", dropout, "dropout of the attention weights (on CUDA, training then stores all of them)",
      base::half_open_range(0.0, 1.0));
    v("position_dropout", position_dropout, "dropout of the sinusoids R; each layer uses its own mask",
      base::half_open_range(0.0, 1.0));
  }
};

/// Attention with relative positions (Dai et al. 2019, section 3.3).
///   p(i,j) = i + M - j        s(i,j) = ((q_i + u).k_j + (q_i + v).r(p)) / sqrt(d),   r(p) = W_r R(p)
///   o = W_o concat_h( softmax_j(s, table) v_j ),  q from x, k and v from [context; x]
/// M is the number of rows to the left of the segment; R is a sinusoid, sines in the first half
/// (ops/attention/position.h). State: kv_cache, only while a segment is open.
class Relative final : public KeyValueAttention {
 public:
  using Options = RelativeOptions;
  /// Throws InputError if `dim` is odd.
  Relative(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  /// s(i,j) above, [B,H,Q,K]; 0 where the table does not allow it.
  at::Tensor scores(const core::AttentionInput& input, const core::State& state) const;

 private:
  /// The arguments of the naive reference: queries with u [B,H,T,d], keys, positions [B,H,T,P] before shifting.
  struct Terms {
    at::Tensor q, k, position;
    ops::RelShift shift;
    double scale;
  };
  Terms terms(const core::AttentionInput& input, const core::State& state) const;
  ops::Positions positions(const at::Tensor& q, const at::Tensor& sinusoids) const;
  /// Whether there are keys to the right of their query, and their scores use the shift of the authors' code.
  bool faithful(const core::AttendTable& table) const {
    return table.looks_right() && options_.rel_shift == RelativeOptions::Shift::faithful;
  }
  at::Tensor sinusoids(const core::AttentionInput& input, const at::Tensor& q, int64_t keys) const;

  Options options_;
  int64_t dim_;
  layers::Linear r_;
  at::Tensor u_, v_;  // [H,d]
};

}  // namespace mnemo::attention
