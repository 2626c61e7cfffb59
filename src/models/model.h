#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backbone.h"
#include "core/head.h"
#include "core/model.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"
#include "memory/learnable_tokens.h"
#include "models/committed_state.h"
#include "models/options.h"
#include "models/segment_memories.h"

namespace mnemo::models {

/// The logits of one head for a batch.
struct TaskLogits {
  std::string name;   ///< "base": the model's own head
  at::Tensor logits;  ///< [B,K]
};

/// model = input x backbone x memories x head, put together from options.
///   texts   Segment.tokens [B,T] -> embedding -> memories' rows beside them -> backbone -> hidden [B,T,D]; or [B,1,D],
///           the row that a classifying head reads
///   images  Segment.pixels [B,C,H,W] -> backbone -> hidden [B,1,D]: the class token, or the mean of the grid, after the
///           final norm
/// Of kind layer_stack it takes Segment.rows [B,T,D], returns hidden [B,T,D], and has neither embedding nor head.
/// State: one child for each memory of the list beside the tokens, "layers" with the attentions' states, and, of texts,
/// "open" with the open segment.
class Model final : public core::Model {
 public:
  /// On the meta device the model is declared, without numbers: for counting.
  Model(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
        at::Device device = at::kCPU);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    return forward(segment, state, {});
  }
  /// Also calls `observe` before each attention and `hidden` with the hidden states on their way.
  core::StepResult forward(const core::Segment& segment, const core::State& state,
                           const core::AttentionObserver& observe, const core::HiddenObserver& hidden = {}) const;
  core::State initial_state(int64_t batch) const override;
  void commit(const core::State& state) override { committed_.commit(state); }
  int64_t bptt_depth(const std::string& path) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  std::vector<core::AuxiliaryLoss> auxiliary_losses(const core::StepResult& step) const override;
  const layers::ParameterSet& parameters() const override { return parameters_; }
  std::vector<core::Scalar> scalars() const override;
  const core::ModelInput& input() const override { return input_; }

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
  /// The memories beside a segment's tokens. Throws InputError for a model of images, which has none.
  const SegmentMemories& memories() const;
  /// The masks of a whole segment of `tokens` rows after `state`, for each set of layers that see the same context.
  std::vector<LayerTable> attend_tables(int64_t tokens, const core::State& state, core::Mode mode) const;

  /// The tasks of a learnable memory; null without any.
  const memory::LearnableTokens* tasks() const { return tasks_.get(); }
  /// Selects the task whose hidden row forward() returns, and whose logits and losses logits() and nll() give, or
  /// "base" (the model's own head, selected at first). With tasks in full attention "base" is what the old head makes
  /// of rows that the tasks have changed. Throws InputError for a task that is not attached.
  void answer_for(const std::string& task);
  /// The logits of all heads in one pass over a batch that is classified: "base", unless tasks have changed its rows
  /// (full attention) or it has no classes, then each task's in their order.
  std::vector<TaskLogits> task_logits(const core::Segment& segment, const core::AttentionObserver& observe = {},
                                      const core::HiddenObserver& hidden = {}) const;
  /// The same from what the backbone, or its task runner, has computed.
  std::vector<TaskLogits> task_logits(const core::TasksResult& result) const;
  /// Of the selected head; 0: it does not classify.
  int64_t num_classes() const;

 private:
  void make_backbone(const layers::Scope& scope);
  void make_memories();
  void make_embedding(const layers::Scope& scope);
  void make_head(const layers::Scope& scope);
  void require_input(const core::Segment& segment) const;
  at::Tensor embed(const core::Segment& segment) const;
  /// Of hidden states [B,Q,D] whose last rows, or tokens, are `count`: what StepResult.hidden is.
  at::Tensor hidden_of(const at::Tensor& hidden, int64_t first, int64_t count, const at::Tensor& valid) const;
  core::StepResult forward_images(const core::Segment& segment, const core::State& state,
                                  const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const;
  /// The rows that the heads read, [B,1,D]: the model's own first, then each task's.
  std::vector<at::Tensor> head_rows(const core::TasksResult& result) const;

  ModelOptions options_;
  core::ModelInput input_;
  layers::ParameterSet parameters_;
  std::optional<layers::TokenEmbedding> embedding_;
  std::optional<layers::AdaptiveEmbedding> adaptive_embedding_;
  std::unique_ptr<core::Backbone> backbone_;
  std::optional<SegmentMemories> memories_;  ///< of texts
  std::unique_ptr<core::Head> head_;
  at::Tensor cls_;  ///< [D]: the row in front of the tokens that a classification reads, where no memory brings one
  std::unique_ptr<memory::LearnableTokens> tasks_;
  std::optional<size_t> answers_;  ///< index of a task; unset: "base"
  CommittedState committed_;
};

/// Throws InputError naming `who` unless the model reads such input.
void require_input(const core::Model& model, core::InputKind input, std::string_view who);

/// Throws InputError naming `who` unless the model predicts the next token from those before: what writes or measures
/// texts needs it.
void require_next_token_model(const core::Model& model, std::string_view who);

/// Builds a model; its fresh parameters depend on the seed alone. Throws InputError for options that make no sense or
/// ask for more than the budget.
std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat,
                             const layers::Budget& budget = {});

/// Parameters of a model of those options, counted from their declarations alone.
int64_t count_parameters(const ModelOptions& options);

}  // namespace mnemo::models
