#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backbone.h"
#include "core/head.h"
#include "core/model.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"
#include "models/committed_state.h"
#include "models/options.h"

namespace mnemo::models {

/// Rows so far of a segment that goes on in the next call; absent between segments.
struct OpenSegment {
  at::Tensor length;     ///< [B] int64: rows of this segment so far, memory rows included
  at::Tensor read_rows;  ///< [B] int64: memory rows among them
  /// [B,M] bool each: which of [context; rows so far] are real, for every set of layers that see the same context.
  std::vector<at::Tensor> valid = std::vector<at::Tensor>(1);
  template <class F>
  void visit(F&& f) {
    f("length", length, "B");
    f("read_rows", read_rows, "B");
    for (size_t view = 0; view < valid.size(); ++view) {
      f(view == 0 ? std::string("valid") : "valid_" + std::to_string(view), valid[view], "B M");
    }
  }
};

/// Who attends to whom in some layers of a model.
struct LayerTable {
  std::vector<int64_t> layers;
  core::AttendTable table;
};

/// The model of texts (vision_model.h: of images): embedding, memories on three seams, backbone, head, put together
/// from options.
/// State: one child for each memory of the list, "layers" with the attentions' states, "open" with the open segment.
class Model final : public core::Model {
 public:
  /// On the meta device the model is declared, without numbers: for counting.
  Model(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
        at::Device device = at::kCPU);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    return forward(segment, state, {});
  }
  /// The same, with somebody who is told of each attention before it runs.
  core::StepResult forward(const core::Segment& segment, const core::State& state,
                           const core::AttentionObserver& observe) const;
  core::State initial_state(int64_t batch) const override;
  void commit(const core::State& state) override { committed_.commit(state); }
  int64_t bptt_depth(const std::string& path) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override;
  const layers::ParameterSet& parameters() const override { return parameters_; }
  std::vector<core::Scalar> scalars() const override;
  int64_t segment_size() const override { return options_.segment_size; }
  int64_t vocab_size() const override { return options_.embedding.vocab_size; }

  const ModelOptions& options() const { return options_; }
  const core::Backbone& backbone() const { return *backbone_; }
  /// The embedding of tokens, of whichever kind the model has; null: of the other, or none.
  const layers::TokenEmbedding* token_embedding() const { return embedding_ ? &*embedding_ : nullptr; }
  const layers::AdaptiveEmbedding* adaptive_embedding() const {
    return adaptive_embedding_ ? &*adaptive_embedding_ : nullptr;
  }
  /// Null: a layer_stack.
  const core::Head* head_or_null() const { return head_.get(); }
  const core::Head& head() const;
  /// The tables of a whole segment of `tokens` rows after `state`, for each set of layers that see the same context.
  std::vector<LayerTable> attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const;

  /// A memory of the list and its name in the state: its type, with a number behind it where it is not the first.
  template <class M>
  struct Named {
    std::string name;
    std::unique_ptr<M> memory;
  };
  const std::vector<Named<core::LayerContext>>& contexts() const { return contexts_; }
  const std::vector<Named<core::SequenceMemory>>& sequences() const { return sequences_; }
  /// Number of the context that serves a layer, or -1.
  int64_t context_of(int64_t layer) const { return context_of_[static_cast<size_t>(layer)]; }

 private:
  void make_memories();
  void make_embedding(const layers::Scope& scope);
  void make_head(const layers::Scope& scope);
  at::Tensor embed(const at::Tensor& tokens) const;
  /// What StepResult.hidden is: the token rows, or [B,1,D], what the head of a classification reads.
  at::Tensor hidden_of(const at::Tensor& hidden, const core::SegmentRows& rows, const core::Segment& segment) const;
  /// Throws InputError where the attention cannot honour a memory of the model.
  void require_support(const ModelOptions& options) const;
  /// Between segments: absent fields.
  OpenSegment closed_segment() const;
  /// The context that a view shows, or null.
  const Named<core::LayerContext>* context_in(size_t view) const;
  core::SegmentRows start_rows(const core::Segment& segment, const core::State& state, const OpenSegment& open) const;
  void set_valid(core::SegmentRows& rows, const core::State& state, const OpenSegment& open, bool starts) const;
  OpenSegment still_open(const core::SegmentRows& rows, const OpenSegment& open, const core::State& state,
                         bool starts) const;
  core::BackboneResult run_layers(const core::Segment& segment, const core::SegmentRows& rows, const core::State& state,
                                  const OpenSegment& open, const core::AttentionObserver& observe) const;

  ModelOptions options_;
  layers::ParameterSet parameters_;
  std::optional<layers::TokenEmbedding> embedding_;
  std::optional<layers::AdaptiveEmbedding> adaptive_embedding_;
  std::unique_ptr<core::Backbone> backbone_;
  std::vector<Named<core::LayerContext>> contexts_;
  std::vector<Named<core::SequenceMemory>> sequences_;
  std::vector<int64_t> context_of_;  ///< by layer
  std::vector<int64_t> views_;       ///< the different values of context_of_, in the order of the layers
  std::vector<size_t> view_of_;      ///< by layer
  std::unique_ptr<core::Head> head_;
  at::Tensor cls_;  ///< [D]: the row in front of the tokens that a classification reads, where no memory brings one
  CommittedState committed_;
};

/// The model as one of texts. Throws InputError naming `who` for a model of images.
const Model& require_language_model(const core::Model& model, std::string_view who);
std::shared_ptr<Model> language_model(const std::shared_ptr<core::Model>& model, std::string_view who);

/// Throws InputError naming `who` unless the model predicts the next token from those before: what writes or measures
/// texts needs it.
void require_next_token_model(const core::Model& model, std::string_view who);

/// Builds a language model (build.h: any); its fresh parameters depend on the seed alone. Throws InputError for options
/// that make no sense or ask for more than the budget.
std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat,
                             const layers::Budget& budget = {});

}  // namespace mnemo::models
