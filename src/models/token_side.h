#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/typed_options.h"
#include "core/backbone.h"
#include "core/head.h"
#include "core/model.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"
#include "models/options.h"
#include "models/segment_memories.h"

namespace mnemo::models {

/// The embedding of a model's tokens: of the same width for all, or narrower for rare ones; none in a layer_stack.
struct TokenEmbeddings {
  std::optional<layers::TokenEmbedding> plain = {};
  std::optional<layers::AdaptiveEmbedding> adaptive = {};

  /// `options` of a backbone of width `dim` whose initial weights have that deviation. Throws InputError for an empty
  /// vocabulary and for clusters that do not fit it.
  static TokenEmbeddings make(const EmbeddingOptions& options, const layers::Scope& scope, int64_t dim,
                              double weight_std);
  bool exists() const { return plain || adaptive; }
  /// tokens [..] int64 -> [..,D].
  at::Tensor operator()(const at::Tensor& tokens) const { return plain ? (*plain)(tokens) : (*adaptive)(tokens); }
};

/// Tokens to the rows that a head reads: all of a text model, and the target side of a translation model.
///   tokens [B,T] -> embedding -> memory rows added -> backbone -> hidden [B,T,D]; or [B,1,D], the row that a
///   classification head reads
/// In a layer_stack it takes Segment.rows [B,T,D], and has neither embedding nor head.
/// State: one child for each memory on the layer-context and sequence seams, "layers" with the attentions' states, and
/// "open" with the open segment.
class TokenSide {
 public:
  struct Parts {
    TokenEmbeddings embedding = {};
    std::unique_ptr<core::Backbone> backbone = {};
    std::vector<base::TypedOptions> memories = {};
    base::TypedOptions attention = {};  ///< of the backbone's layers; errors name its place
  };
  /// Makes the memories and the head, whose parameters come after those of the parts.
  TokenSide(const ModelOptions& options, layers::ParameterSet& parameters, Parts parts);

  core::State initial_state(int64_t batch) const {
    return memories_->initial_state(batch, backbone_->initial_state(batch));
  }
  /// As core::Model::bptt_depth; 0 if the path does not belong to it.
  int64_t bptt_depth(const std::string& path) const;
  bool sees_ahead() const;
  /// `encoder`: for layers with cross-attention.
  core::StepResult forward(const core::Segment& segment, const core::State& state, const core::EncoderOutput& encoder,
                           const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const;
  /// As core::Model::auxiliary_losses; `contexts`: the memories that made StepResult.context_losses.
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step,
                                                    const SegmentMemories& contexts) const;
  /// The masks of a whole segment of `tokens` rows after `state`, one for each set of layers that see the same context.
  std::vector<LayerTable> attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const;

  const TokenEmbeddings& embedding() const { return embedding_; }
  const core::Backbone& backbone() const { return *backbone_; }
  /// On the layer-context and sequence seams.
  const SegmentMemories& memories() const { return *memories_; }
  /// Null in a layer_stack.
  const core::Head* head() const { return head_.get(); }

 private:
  void make_head(const ModelOptions& options, const layers::Scope& scope);

  TokenEmbeddings embedding_;
  std::unique_ptr<core::Backbone> backbone_;
  std::optional<SegmentMemories> memories_;
  std::unique_ptr<core::Head> head_;
  at::Tensor cls_;   ///< [D]: the row before the tokens that a classification head reads, if no memory provides one
  at::Tensor like_;  ///< a parameter
};

}  // namespace mnemo::models
