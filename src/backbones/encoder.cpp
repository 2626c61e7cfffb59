#include "backbones/encoder.h"

#include <torch/types.h>

namespace mnemo::backbones {

Encoder::Encoder(const EncoderOptions& options, const layers::Scope& scope, const core::AttentionMaker& make_attention)
    : LayerStack(options, scope, false, make_attention) {
  if (options.token_types > 0) {
    token_types_ = (scope / "token_types")
                       .add("weight", {options.token_types, options.dim}, layers::normal(options.init_std));
  }
  if (options.embed_norm)
    embed_norm_ = layers::Norm(options.norm_type, scope / "embed_norm", options.dim, options.norm_eps);
}

at::Tensor Encoder::embed(const core::BackboneInput& input) const {
  at::Tensor rows = token_types_.defined() ? positioned(input) : LayerStack::embed(input);
  if (input.token_types.defined()) {
    layers::require_below(input.token_types, token_types_.size(0), "token types");
    rows = rows + at::embedding(token_types_, input.token_types);
  } else if (token_types_.defined()) {
    rows = rows + token_types_[0];
  }
  return embed_norm_ ? embed_norm_(rows) : rows;
}

}  // namespace mnemo::backbones
