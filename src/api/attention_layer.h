#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/node.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "layers/parameters.h"

namespace mnemo {

/// Type and size of an attention layer.
struct AttentionLayerOptions {
  base::Node attention = base::Node("softmax");  ///< as backbone.attention of a recipe: a name, or a table with `type`
  std::vector<base::Node> memory = {};           ///< memories around it, as `memory` of a recipe: {type = "grc", ...}
  int64_t dim = 96;                              ///< D
  int64_t num_heads = 4;
  bool causal = true;
  uint64_t seed = 0;  ///< seed of the initial weights
};

/// The attention with those options, for a backbone that is building a layer (core::AttentionMaker); width and number
/// of heads are the layer's. Throws as AttentionLayer does.
std::unique_ptr<core::Attention> make_attention(const AttentionLayerOptions& options,
                                                const core::AttentionBuild& build);

/// An attention of Mnemo for use in your own model, with its projections and the memories around it. It is a function
/// (rows, state) -> (rows, state): all memory is in the state, and gradients flow through the state as in Mnemo's
/// training. layers::register_parameters registers its weights in a torch::nn::Module.
class AttentionLayer {
 public:
  /// Throws InputError for unknown options, and for memories that are not on the attention seam (segment_cache,
  /// recurrent_tokens): for those build a model of kind "layer_stack", which maps rows to rows.
  explicit AttentionLayer(const AttentionLayerOptions& options);

  /// The state before the first segment of `batch` sequences.
  core::State initial_state(int64_t batch) const { return attention_->initial_state(batch); }

  /// A whole segment x [B,T,D] -> y [B,T,D], after the output projection and before any residual, and the state for the
  /// next segment. valid [B,T] bool: false for padding; undefined: no padding.
  core::AttentionResult forward(const at::Tensor& x, const core::State& state, core::Mode mode = core::Mode::train,
                                const at::Tensor& valid = {}) const;

  const layers::ParameterSet& parameters() const { return parameters_; }
  const core::Attention& attention() const { return *attention_; }

 private:
  bool causal_;
  int64_t dim_;
  layers::ParameterSet parameters_;
  std::unique_ptr<core::Attention> attention_;
};

}  // namespace mnemo
