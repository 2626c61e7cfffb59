#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "ops/linear/packed_maps.h"

namespace mnemo::infer {

/// An image model with all its tasks in one pass, made for inference: in float32 on the CPU its linear maps multiply
/// with weights packed once (ops::PackedMaps), and its backbone's task runner, if it has one, runs the class rows of
/// all tasks beside the image's own rows.
///
/// With a runner a task's logits depend bit for bit on nothing but the image, the backbone, and what the task sees:
/// whatever other tasks there are, and in whatever order. Other models run through Model::task_logits, which is the
/// naive twin of this.
class TaskClassifier {
 public:
  /// Packs the model's weights of this moment: later changes are not seen.
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
