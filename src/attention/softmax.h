#pragma once

#include <optional>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/inspection.h"
#include "core/reads_encoder.h"
#include "core/reads_heads.h"
#include "layers/parts.h"

namespace mnemo::attention {

struct SoftmaxOptions {
  bool bias = true;
  std::optional<bool> qkv_bias;
  double dropout = 0.0;
  template <class V>
  void visit(V&& v) {
    v("bias", bias, "use a bias in the q, k, v and o projections");
    v("qkv_bias", qkv_bias,
      "use a bias in the q, k and v projections; `bias` then only applies to o; unset: same as `bias`");
    v("dropout", dropout, "dropout of the attention weights (training then stores all of them)",
      base::half_open_range(0.0, 1.0));
  }
};

/// Scaled dot-product attention over spans (Vaswani et al. 2017, eq. 1).
///   o = W_o concat_h( softmax(q k^T / sqrt(d), table) v ),  q from x, k and v from [context; x]
/// A query without any key gets zeros before W_o. State: kv_cache, only while a segment is open.
class Softmax final : public core::CoreAttention,
                      public core::ReadsHeads,
                      public core::ReadsEncoder,
                      public core::Inspectable {
 public:
  using Options = SoftmaxOptions;
  Softmax(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  at::Tensor project(const at::Tensor& heads) const override { return maps_.o(heads); }
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override { return {.cross = true}; }
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  const layers::AttentionProjections* projections() const override { return &maps_; }
  at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override;
  bool reads_by_softmax() const override { return true; }
  core::EncoderRows encoder_rows(const at::Tensor& encoder_output, const at::Tensor& valid) const override;
  const layers::AttentionProjections& cross_projections() const override { return maps_; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  layers::AttentionProjections maps_;
  double dropout_;
};

}  // namespace mnemo::attention
