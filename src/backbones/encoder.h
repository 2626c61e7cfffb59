#pragma once

#include "backbones/layer_stack.h"

namespace mnemo::backbones {

struct EncoderOptions : LayerStackOptions {
  int64_t token_types = 0;
  bool embed_norm = false;
  template <class V>
  void visit(V&& v) {
    LayerStackOptions::visit(v);
    v("token_types", token_types,
      "encoder: size of the token type table (BERT: 2); tokens have type 0 unless they are given others; 0: no table",
      base::range(0, 1 << 10));
    v("embed_norm", embed_norm, "encoder: apply a norm between the embedding and the first layer");
  }
};

/// Bidirectional layers (Devlin et al. 2019, section 3): a row sees every row except padding.
///   h = norm(x + position + type), then the layers; the norm only with embed_norm
/// Segments must be whole: no part can be computed before the rest is known.
class Encoder final : public LayerStack {
 public:
  Encoder(const EncoderOptions& options, const layers::Scope& scope, const core::AttentionMaker& make_attention);

 private:
  at::Tensor embed(const core::BackboneInput& input) const override;

  at::Tensor token_types_;  // [N,D]
  layers::Norm embed_norm_;
};

}  // namespace mnemo::backbones
