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
      "encoder: rows of a table of token types, of which every row gets the first (BERT has 2); 0: no table",
      base::range(0, 1 << 10));
    v("embed_norm", embed_norm, "encoder: a norm between the embedding and the first layer");
  }
};

/// Layers that look both ways (Devlin et al. 2019, section 3): a row sees every row that is real.
///   h = norm(x + position + type_0), then the layers; the norm only with embed_norm
/// A segment is whole: no part of it can be computed before the rest is known.
class Encoder final : public LayerStack {
 public:
  Encoder(const EncoderOptions& options, const layers::Scope& scope, const core::AttentionMaker& make_attention);

 private:
  at::Tensor embed(const core::BackboneInput& input) const override;

  at::Tensor token_types_;  // [N,D]
  layers::LayerNorm embed_norm_;
};

}  // namespace mnemo::backbones
