#pragma once

#include "backbones/encoder_options.h"
#include "backbones/layer_stack.h"

namespace mnemo::backbones {

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
