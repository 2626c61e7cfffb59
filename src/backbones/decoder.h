#pragma once

#include "backbones/layer_stack.h"

namespace mnemo::backbones {

/// Causal layers: a row sees itself and the rows to its left.
class Decoder final : public LayerStack {
 public:
  Decoder(const LayerStackOptions& options, const layers::Scope& scope, const core::AttentionMaker& make_attention)
      : LayerStack(options, scope, true, make_attention) {}
};

}  // namespace mnemo::backbones
