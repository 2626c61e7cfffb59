#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backbone.h"
#include "core/head.h"
#include "core/level_head.h"
#include "core/task_tokens.h"
#include "memory/learnable_tokens.h"
#include "models/model.h"

namespace mnemo::models {

/// The logits of one head for a batch.
struct TaskLogits {
  std::string name;   ///< "base": the model's own head
  at::Tensor logits;  ///< [B,K]
};

/// Segment.pixels [B,C,H,W] -> backbone -> hidden [B,1,D]: the class token, or the mean of the grid, after the final
/// norm. With kind = "layer_stack" it takes Segment.rows [B,T,D] and returns all rows. With a detector's head hidden
/// is the feature pyramid, heads::DetectorHead::rows(). No attention and no memory reads padding (Segment.valid).
/// State: "layers".
class ImageModel final : public Model, public core::ReadsLevels {
 public:
  static constexpr core::InputKind kInput = core::InputKind::images;
  ImageModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget = {},
             at::Device device = at::kCPU);

  core::State initial_state(int64_t batch) const override;
  /// 0: images are not a sequence, so no gradient flows from one step to the next.
  int64_t bptt_depth(const std::string&) const override { return 0; }
  /// Of the head that answer_for() selects, as nll() and num_classes().
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  int64_t num_classes() const override;
  bool recomputes_layers() const override { return false; }
  const core::ImageBackbone& backbone() const override { return *backbone_; }
  const core::Head* head_or_null() const override { return head_.get(); }
  const core::LevelHead* level_head() const override { return dynamic_cast<const core::LevelHead*>(head_.get()); }

  const core::ImageInput& size() const { return std::get<core::ImageInput>(input_); }
  /// The backbone as one that runs tasks; null if it is none.
  const core::TaskBackbone* task_backbone() const { return task_backbone_; }
  /// The tasks of a learnable memory; null if there are none.
  const memory::LearnableTokens* tasks() const { return tasks_.get(); }
  /// Selects what forward() (hidden row), logits() and nll() refer to: a task, or "base", the model's own head, which
  /// is the default. With tasks in full attention, "base" is the old head applied to rows that the tasks have changed.
  /// Throws InputError for a task that is not attached.
  void answer_for(const std::string& task);
  std::string answers() const;
  /// The logits of all heads for a batch in one pass: "base" first, unless tasks have changed its rows (full attention)
  /// or it has no classes, then each task in order. A detector has none; its head is run.
  std::vector<TaskLogits> task_logits(const core::Segment& segment, const core::AttentionObserver& observe = {},
                                      const core::HiddenObserver& hidden = {}) const;
  /// The same, from the result of the backbone or its task runner.
  std::vector<TaskLogits> task_logits(const core::TasksResult& result) const;

 private:
  core::StepResult run(const core::Segment& segment, const core::State& state, const core::AttentionObserver& observe,
                       const core::HiddenObserver& hidden) const override;
  void make_backbone(const layers::Scope& scope);
  void make_head(const layers::Scope& scope);
  void require_images(const core::Segment& segment) const;
  /// The rows that the heads read, [B,1,D]: for the model's own head first, then for each task's.
  std::vector<at::Tensor> head_rows(const core::TasksResult& result) const;

  std::unique_ptr<core::ImageBackbone> backbone_;
  const core::TaskBackbone* task_backbone_ = nullptr;
  std::unique_ptr<core::Head> head_;
  std::unique_ptr<memory::LearnableTokens> tasks_;
  std::optional<size_t> answers_;  ///< index of a task; unset: "base"
};

}  // namespace mnemo::models
