#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backbones/layer_stack.h"
#include "core/model.h"
#include "layers/parts.h"
#include "models/options.h"
#include "models/segment_memories.h"

namespace mnemo::models {

/// What a decoder attends to, per sequence.
struct EncodedState {
  at::Tensor rows;   ///< [B,M,D]
  at::Tensor valid;  ///< [B,M] bool
  template <class F>
  void visit(F&& f) {
    f("encoder_output", rows, "B M D");
    f("encoder_mask", valid, "B M");
  }
};

/// The source side of a translation model: the embedding of the source, the encoder, and the memories around it.
///   source [B,S] -> embedding -> memory rows added -> encoder -> encoder_output [B,S,D]
/// State: "encoded", and "encoder" with the encoder's memories and attentions.
class SourceSide {
 public:
  /// `embedding` is used if source and target share their table. scope: "backbone" / "encoder".
  SourceSide(const ModelOptions& options, const layers::Scope& root,
             const std::optional<layers::TokenEmbedding>& embedding);

  core::State initial_state(int64_t batch) const;
  /// The state after a source [B,S] int64, of which valid [B,S] bool is real; undefined = all.
  core::State encode(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& state,
                     const core::HiddenObserver& hidden = {}) const;
  /// What the decoder reads.
  static core::EncoderOutput output(const core::State& state);
  /// Whether a memory of a sequence goes from one source to the next.
  bool carries_memory() const;
  /// As core::Model::bptt_depth; unset if the path does not belong to the source side.
  std::optional<int64_t> bptt_depth(std::string_view path) const;
  const core::Backbone& encoder() const { return *encoder_; }
  const layers::TokenEmbedding& embedding() const { return embedding_; }

 private:
  layers::TokenEmbedding embedding_;
  std::unique_ptr<core::Backbone> encoder_;
  std::optional<SegmentMemories> memories_;
};

}  // namespace mnemo::models
