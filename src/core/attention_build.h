#pragma once

#include <cstdint>

#include "layers/parameters.h"

namespace mnemo::core {

/// The position of an attention module in a model, passed to its constructor along with its options.
/// D `dim`, H `num_heads`, d `head_dim` (H*d need not be D).
struct AttentionBuild {
  layers::Scope attn;    ///< the module's own parameters ("backbone.layers.0.attn")
  layers::Scope layer;   ///< parameters of its layer ("backbone.layers.0")
  layers::Scope shared;  ///< parameters shared by all layers ("backbone")
  int64_t dim = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  bool causal = true;
  double init_std = 0.02;
  int64_t layer_number = 0;  ///< 0 = the lowest
};

}  // namespace mnemo::core
