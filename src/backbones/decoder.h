#pragma once

#include "backbones/layer_stack.h"

namespace mnemo::backbones {

/// Causal layers: a row sees itself and the rows to its left.
class Decoder final : public LayerStack {
 public:
  /// make_cross: in translation models, for the attention to the encoder's output.
  Decoder(const LayerStackOptions& options, const layers::Scope& scope, const core::AttentionMaker& make_attention,
          const core::AttentionMaker& make_cross = {})
      : LayerStack(options, scope, true, make_attention, make_cross) {}
};

}  // namespace mnemo::backbones
