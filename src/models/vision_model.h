#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbones/vision_backbone.h"
#include "core/head.h"
#include "core/model.h"
#include "heads/classification.h"
#include "memory/learnable_tokens.h"
#include "models/committed_state.h"
#include "models/options.h"

namespace mnemo::models {

/// What one head says of a batch of images.
struct TaskLogits {
  std::string name;   ///< "base": the model's own head
  at::Tensor logits;  ///< [B,K]
};

/// A model of images: patches, backbone, memories around its attentions, one class an image.
///   Segment.pixels [B,C,H,W] -> hidden [B,1,D], the row that the head reads: the class token, or the mean of the
///   grid's rows, after the
///   final norm; logits [B,1,K], targets [B,1]
/// Of kind layer_stack it takes Segment.rows [B,T,D], gives hidden [B,T,D], and has no head. State: "layers" with the
/// attentions' states.
class VisionModel final : public core::Model {
 public:
  /// On the meta device the model is declared, without numbers: for counting.
  VisionModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
              at::Device device = at::kCPU);

  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    return forward(segment, state, {}, {});
  }
  /// The same, with somebody who is told of each attention before it runs, and somebody who is told of the rows on
  /// their way.
  core::StepResult forward(const core::Segment& segment, const core::State& state,
                           const core::AttentionObserver& observe, const backbones::HiddenObserver& hidden) const;
  core::State initial_state(int64_t batch) const override;
  void commit(const core::State& state) override { committed_.commit(state); }
  /// Images are no sequence: nothing goes from one step to the next with a gradient.
  int64_t bptt_depth(const std::string&) const override { return 0; }
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  const layers::ParameterSet& parameters() const override { return parameters_; }
  std::vector<core::Scalar> scalars() const override;
  /// 0: there are no tokens.
  int64_t segment_size() const override { return 0; }
  int64_t vocab_size() const override { return 0; }

  const ModelOptions& options() const { return options_; }
  const backbones::VisionBackbone& backbone() const { return *backbone_; }
  /// Null in a layer_stack.
  const heads::Classification* head() const { return head_.get(); }
  /// The tasks of learnable memory; null without any.
  const memory::LearnableTokens* tasks() const { return tasks_.get(); }
  /// Says whose row hidden is, and whose logits() and nll() are: a task's, or "base" (the model's own, from the start).
  /// With tasks in full attention "base" is what the old head makes of rows that the tasks have changed. Throws
  /// InputError for a task that is not attached.
  void answer_for(const std::string& task);
  /// Everybody's logits in one pass: "base", unless tasks have changed its rows (full attention) or it has no classes,
  /// then each task's in their order.
  std::vector<TaskLogits> task_logits(const core::Segment& segment, const core::AttentionObserver& observe = {},
                                      const backbones::HiddenObserver& hidden = {}) const;
  /// Of who answers.
  int64_t num_classes() const;
  /// What the head reads of a backbone's result, [B,1,D].
  at::Tensor pooled(const backbones::VisionResult& result) const;

 private:
  /// The rows that the heads read, [B,1,D]: the model's own first, then each task's.
  std::vector<at::Tensor> head_rows(const backbones::VisionInput& input) const;
  ModelOptions options_;
  layers::ParameterSet parameters_;
  std::unique_ptr<backbones::VisionBackbone> backbone_;
  std::unique_ptr<heads::Classification> head_;
  std::unique_ptr<memory::LearnableTokens> tasks_;
  std::optional<size_t> answers_;  ///< number of a task; unset: "base"
  CommittedState committed_;
};

/// The model as one of images. Throws InputError naming `who` for any other.
const VisionModel& require_vision_model(const core::Model& model, std::string_view who);

}  // namespace mnemo::models
