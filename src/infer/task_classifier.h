#pragma once

#include <memory>
#include <vector>

#include "core/task_tokens.h"
#include "ops/linear/packed_maps.h"

namespace mnemo::models {
class Model;
struct TaskLogits;
}  // namespace mnemo::models

namespace mnemo::infer {

/// Runs an image model with all its tasks in one pass, for inference. In float32 on the CPU, weights of linear maps are
/// packed once (ops::PackedMaps), and the backbone's task runner, if it has one, runs the class rows of all tasks
/// alongside the image's own rows.
///
/// With a runner, a task's logits depend only on the image, the backbone and what the task sees, bit for bit, whatever
/// other tasks there are and in any order. Other models run through Model::task_logits, the naive reference of this
/// class.
class TaskClassifier {
 public:
  /// Packs the current weights: later changes have no effect.
  explicit TaskClassifier(std::shared_ptr<const models::Model> model);

  /// pixels [B,C,H,W], normalised -> the logits [B,K] of "base" and of each task, in the order of Model::task_logits.
  std::vector<models::TaskLogits> operator()(const at::Tensor& pixels) const;

  /// Whether a task runner is used.
  bool is_packed() const { return runner_ != nullptr; }
  const models::Model& model() const { return *model_; }

 private:
  std::shared_ptr<const models::Model> model_;
  ops::PackedMaps maps_;
  std::unique_ptr<const core::TaskRunner> runner_;
};

}  // namespace mnemo::infer
