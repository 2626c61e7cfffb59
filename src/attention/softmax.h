#pragma once

#include <optional>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/inspection.h"
#include "core/kv_state.h"
#include "core/reads_heads.h"
#include "core/rotary.h"
#include "layers/parts.h"

namespace mnemo::attention {

struct SoftmaxOptions {
  bool bias = true;
  std::optional<bool> qkv_bias;
  std::optional<int64_t> num_kv_heads;
  std::optional<core::RotaryOptions> rotary;
  bool scaled = true;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("bias", bias, "use a bias in the q, k, v and o projections");
    v("qkv_bias", qkv_bias,
      "use a bias in the q, k and v projections; `bias` then only applies to o; unset: same as `bias`");
    v("num_kv_heads", num_kv_heads,
      "heads of keys and values, a divisor of num_heads: each is read by several query heads (grouped queries); unset: "
      "num_heads",
      base::range(1, 1 << 10));
    v("rotary", rotary, "rotary positions of queries and keys; unset: none");
    v("scaled", scaled, "divide q k^T by the square root of the head width (T5 does not)");
    v("dropout", dropout, "dropout of the attention weights (on CUDA, training then stores all of them)",
      base::half_open_range(0.0, 1.0));
  }
};

/// Scaled dot-product attention over spans (Vaswani et al. 2017, eq. 1).
///   o = W_o concat_h( softmax(q k^T / sqrt(d), table) v ),  q from x, k and v from [context; x]
/// Not divided by sqrt(d) without `scaled`. A query without any key gets zeros before W_o. With rotary positions, q and
/// k are turned by their row's number in [context; rows of the segment]; only differences matter. State: kv_cache, only
/// while a segment is open, keys as they are before they are turned: their numbers may still move.
class Softmax final : public core::CoreAttention, public core::ReadsHeads, public core::Inspectable {
 public:
  using Options = SoftmaxOptions;
  Softmax(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  at::Tensor project(const at::Tensor& heads) const override { return maps_.o(heads); }
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override { return {.cross = frequencies_.empty()}; }
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  std::unique_ptr<core::DecodeCross> cross_decoder(const core::DecodeBuild& build) const override;
  /// Without the turn of rotary positions, which is a term of position and not of content.
  const layers::AttentionProjections* projections() const override { return &maps_; }
  at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  bool reads_by_softmax() const override { return scaled_; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  /// q of the rows, and k and v of the rows and contexts. In training keys that are padding are zero, not projected.
  layers::AttentionProjections::Heads projected(const core::AttentionInput& input) const;
  /// The scale of q k^T for heads of that width.
  double scale_of(int64_t head_dim) const;

  layers::AttentionProjections maps_;
  std::vector<double> frequencies_;  ///< of rotary positions; empty: none
  bool scaled_;
  double dropout_;
};

}  // namespace mnemo::attention
