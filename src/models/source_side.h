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

/// The encoder's output that a decoder attends to, per sequence.
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
/// A source longer than encoder.segment_size runs segment by segment, one after another through the memories; positions
/// go on from one to the next. encoder_output has the rows of all of them, with each segment's memory rows if a memory
/// shows them (SequenceMemory::shows_rows); gradients flow back through all segments of a source.
/// With memories or segments, real tokens are moved to the front of their source first, so that it does not matter on
/// which side it was padded.
/// State: "encoded", and "encoder" with the encoder's memories and attentions.
class SourceSide {
 public:
  /// `embedding` is used if source and target share their table. scope: "backbone" / "encoder".
  SourceSide(const ModelOptions& options, const layers::Scope& root,
             const std::optional<layers::TokenEmbedding>& embedding);

  core::State initial_state(int64_t batch) const;
  /// The state after a source segment: its tokens [B,S], which of them are real, and how they are run.
  struct Encoded {
    core::State state;
    std::vector<at::Tensor> losses = {};  ///< of layer contexts, as core::StepResult has them: means over segments
  };
  Encoded encode(core::Segment segment, const core::State& state, const core::HiddenObserver& hidden = {}) const;
  /// The encoder's output in a state.
  static core::EncoderOutput output(const core::State& state);
  /// The rows of the encoder's output that belong to the tokens of a source [B,length], in order.
  std::vector<int64_t> token_rows(int64_t length) const;
  /// Whether a memory of a sequence goes from one source to the next.
  bool carries_memory() const;
  /// As core::Model::bptt_depth; unset if the path does not belong to the source side.
  std::optional<int64_t> bptt_depth(std::string_view path) const;
  const core::Backbone& encoder() const { return *encoder_; }
  /// Parameters of the encoder and its memories.
  const std::vector<layers::Parameter>& parameters() const { return parameters_; }
  const layers::TokenEmbedding& embedding() const { return embedding_; }
  const SegmentMemories& memories() const { return *memories_; }

 private:
  /// The rows that a decoder sees of one segment, which is not the first of its source if `first` > 0, and the state
  /// after it. `losses` are added to.
  EncodedState encode_segment(const core::Segment& segment, int64_t first, core::State& state,
                              std::vector<at::Tensor>& losses, const core::HiddenObserver& hidden) const;
  /// Whether the decoder sees the memory rows too.
  bool shows_rows() const;

  layers::TokenEmbedding embedding_;
  std::unique_ptr<core::Backbone> encoder_;
  std::optional<SegmentMemories> memories_;
  std::vector<layers::Parameter> parameters_;
  std::optional<int64_t> segment_size_;
};

}  // namespace mnemo::models
