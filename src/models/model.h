#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backbone.h"
#include "core/head.h"
#include "core/model.h"
#include "core/task_tokens.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"
#include "memory/learnable_tokens.h"
#include "models/committed_state.h"
#include "models/options.h"
#include "models/segment_memories.h"
#include "models/source_side.h"

namespace mnemo::models {

/// The logits of one head for a batch.
struct TaskLogits {
  std::string name;   ///< "base": the model's own head
  at::Tensor logits;  ///< [B,K]
};

/// model = input x backbone x memories x head, built from options.
///   texts   Segment.tokens [B,T] -> embedding -> memory rows added -> backbone -> hidden [B,T,D]; or [B,1,D],
///           the row that a classification head reads
///   images  Segment.pixels [B,C,H,W] -> backbone -> hidden [B,1,D]: the class token, or the mean of the grid, after
///   the
///           final norm
///   pairs   Segment.source [B,S] -> SourceSide; Segment.tokens [B,U] -> embedding -> decoder, with cross-attention to
///           the encoder's output -> hidden [B,U,D]
/// With kind = "layer_stack" it takes Segment.rows [B,T,D], returns hidden [B,T,D], and has neither embedding nor head.
/// State: one child for each memory of the list on the layer-context and sequence seams, "layers" with the attentions'
/// states, and, unless it reads images, "open" with the open segment. A translation model has "source" besides.
class Model final : public core::Model {
 public:
  /// On the meta device the model has no data: for counting parameters.
  Model(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
        at::Device device = at::kCPU);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    return forward(segment, state, {});
  }
  /// Also calls `observe` before each attention and `hidden` with the hidden states.
  core::StepResult forward(const core::Segment& segment, const core::State& state,
                           const core::AttentionObserver& observe, const core::HiddenObserver& hidden = {}) const;
  core::State initial_state(int64_t batch) const override;
  void commit(const core::State& state) override { committed_.commit(state); }
  int64_t bptt_depth(const std::string& path) const override;
  /// Whether an attention says so of itself: core::AttentionSupport::sees_ahead.
  bool sees_ahead() const;
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override;
  const layers::ParameterSet& parameters() const override { return parameters_; }
  std::vector<core::Scalar> scalars() const override;
  const core::ModelInput& input() const override { return input_; }

  const ModelOptions& options() const { return options_; }
  const core::Backbone& backbone() const { return *backbone_; }
  /// The backbone of images as one that runs tasks; null if it is none.
  const core::TaskBackbone* task_backbone() const { return task_backbone_; }
  /// The source side of a translation model; null in any other.
  const SourceSide* source() const { return source_ ? &*source_ : nullptr; }
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, core::Mode mode, const core::State& before,
                          const core::HiddenObserver& hidden = {}) const override;
  core::State carried(const core::State& state) const override;
  /// The token embedding of either type; null if the model uses the other type, or has no embedding.
  const layers::TokenEmbedding* token_embedding() const { return embedding_ ? &*embedding_ : nullptr; }
  const layers::AdaptiveEmbedding* adaptive_embedding() const {
    return adaptive_embedding_ ? &*adaptive_embedding_ : nullptr;
  }
  /// Null in a layer_stack.
  const core::Head* head_or_null() const { return head_.get(); }
  const core::Head& head() const;
  /// The memories on the layer-context and sequence seams; of a translation model's decoder, which has none. Throws
  /// InputError for an image model.
  const SegmentMemories& memories() const;
  /// The masks of a whole segment of `tokens` rows after `state`, one for each set of layers that see the same context.
  std::vector<LayerTable> attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const;

  /// The tasks of a learnable memory; null if there are none.
  const memory::LearnableTokens* tasks() const { return tasks_.get(); }
  /// Selects what forward() (hidden row), logits() and nll() refer to: a task, or "base", the model's own head, which
  /// is the default. With tasks in full attention, "base" is the old head applied to rows that the tasks have changed.
  /// Throws InputError for a task that is not attached.
  void answer_for(const std::string& task);
  /// The logits of all heads for a batch in one pass: "base" first, unless tasks have changed its rows (full attention)
  /// or it has no classes, then each task in order.
  std::vector<TaskLogits> task_logits(const core::Segment& segment, const core::AttentionObserver& observe = {},
                                      const core::HiddenObserver& hidden = {}) const;
  /// The same, from the result of the backbone or its task runner.
  std::vector<TaskLogits> task_logits(const core::TasksResult& result) const;
  /// Classes of the selected head; 0: it is not a classifier.
  int64_t num_classes() const;

 private:
  void make_backbone(const layers::Scope& scope);
  void make_pairs(const layers::Scope& scope);
  void make_memories();
  void make_embedding(const layers::Scope& root);
  void make_head(const layers::Scope& scope);
  void require_input(const core::Segment& segment) const;
  at::Tensor embed(const core::Segment& segment) const;
  /// StepResult.hidden from hidden states [B,Q,D], of which `count` rows from `first` on are the tokens or the image.
  at::Tensor hidden_of(const at::Tensor& hidden, int64_t first, int64_t count, const at::Tensor& valid) const;
  /// The state in which a target begins, of a model whose source has been read.
  core::State begin_target(int64_t batch, core::State source) const;
  core::StepResult forward_tokens(const core::Segment& segment, const core::State& state,
                                  const core::EncoderOutput& encoder, const core::AttentionObserver& observe,
                                  const core::HiddenObserver& hidden) const;
  core::StepResult forward_images(const core::Segment& segment, const core::State& state,
                                  const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const;
  /// The rows that the heads read, [B,1,D]: for the model's own head first, then for each task's.
  std::vector<at::Tensor> head_rows(const core::TasksResult& result) const;

  ModelOptions options_;
  core::ModelInput input_;
  layers::ParameterSet parameters_;
  std::optional<layers::TokenEmbedding> embedding_;
  std::optional<layers::AdaptiveEmbedding> adaptive_embedding_;
  std::unique_ptr<core::Backbone> backbone_;
  const core::TaskBackbone* task_backbone_ = nullptr;
  std::optional<SourceSide> source_;         ///< translation models only
  std::optional<SegmentMemories> memories_;  ///< unless the model reads images
  std::unique_ptr<core::Head> head_;
  at::Tensor cls_;  ///< [D]: the row before the tokens that a classification head reads, if no memory provides one
  std::unique_ptr<memory::LearnableTokens> tasks_;
  std::optional<size_t> answers_;  ///< index of a task; unset: "base"
  CommittedState committed_;
};

/// Throws InputError naming `who` unless the model takes this kind of input.
void require_input(const core::Model& model, core::InputKind input, std::string_view who);

/// Throws InputError naming `who` unless the model predicts the next token from those before it, as generating and
/// evaluating text requires.
void require_next_token_model(const core::Model& model, std::string_view who);

/// Notice of commands about a model that sees_ahead().
inline constexpr const char* kSeesAheadNotice =
    "the model's queries see later tokens of their segment, which is for analysis: its perplexity is not that of a "
    "language model";

/// Builds a model; its initial parameters depend only on the seed. Throws InputError for invalid options or options
/// that exceed the budget. On the meta device the model has shapes and no data.
std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat,
                             const layers::Budget& budget = {}, at::Device device = at::kCPU);

/// The number of parameters of a model with those options, counted from their declarations.
int64_t count_parameters(const ModelOptions& options);

}  // namespace mnemo::models
