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

/// Which attention, how wide.
struct AttentionLayerOptions {
  base::Node attention = base::Node("softmax");  ///< as backbone.attention of a recipe: a name, or a table with `type`
  std::vector<base::Node> memory = {};           ///< memories around it, as `memory` of a recipe: {type = "grc", ...}
  int64_t dim = 96;                              ///< D
  int64_t num_heads = 4;
  bool causal = true;
  uint64_t seed = 0;  ///< of fresh weights
};

/// The attention of those options for a layer that a backbone is making (core::AttentionMaker); width and number of
/// heads are the layer's. Throws as AttentionLayer does.
std::unique_ptr<core::Attention> make_attention(const AttentionLayerOptions& options,
                                                const core::AttentionBuild& build);

/// One attention of Mnemo for a model of one's own, with its projections and the memories around it. It is a function
/// (rows, state) -> (rows, state): what it remembers is in the state alone, and gradients flow through that as in
/// training here. layers::register_parameters makes its weights those of a torch::nn::Module.
class AttentionLayer {
 public:
  /// Throws InputError for unknown options, and for a memory that stands beside the attention instead of around it
  /// (segment_cache, recurrent_tokens): for those take a model of kind "layer_stack", which is rows to rows.
  explicit AttentionLayer(const AttentionLayerOptions& options);

  /// The state before the first segment of `batch` sequences.
  core::State initial_state(int64_t batch) const { return attention_->initial_state(batch); }

  /// A whole segment x [B,T,D] -> y [B,T,D], after the output projection and before any residual, and the state for the
  /// next segment. valid [B,T] bool: which keys are real; undefined: all.
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
