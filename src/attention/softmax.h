#pragma once

#include <vector>

#include "attention/key_value_attention.h"
#include "base/options.h"
#include "core/reads_heads.h"

namespace mnemo::attention {

struct SoftmaxOptions : core::GroupedProjectionOptions {
  bool scaled = true;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    GroupedProjectionOptions::visit(v);
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
class Softmax final : public KeyValueAttention, public core::ReadsHeads {
 public:
  using Options = SoftmaxOptions;
  Softmax(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  core::AttentionSupport support() const override { return {.cross = frequencies_.empty()}; }
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  std::unique_ptr<core::DecodeCross> cross_decoder(const core::DecodeBuild& build) const override;
  const core::ReadsHeads* reads_heads() const override { return this; }
  at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  bool reads_by_softmax() const override { return scaled_; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  /// q of the rows, and k and v of the rows and contexts. In training keys that are padding are zero, not projected.
  layers::AttentionProjections::Heads projected(const core::AttentionInput& input) const;
  /// The scale of q k^T for heads of that width.
  double scale_of(int64_t head_dim) const;

  std::vector<double> frequencies_;  ///< of rotary positions; empty: none
  bool scaled_;
  double dropout_;
};

}  // namespace mnemo::attention
