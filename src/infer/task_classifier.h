#pragma once

#include <memory>
#include <vector>

#include "models/vision_model.h"
#include "ops/attention/task_attention.h"
#include "ops/linear/packed_maps.h"

namespace mnemo::infer {

/// A model of images with all its tasks in one pass, made for inference: in float32 on the CPU its linear maps multiply
/// with weights packed once (ops::PackedMaps).
///
/// The old rows run once, through the model's own layers. The class rows of all tasks run beside them as a small batch,
/// with the keys and values of the memories projected once, not for each image. A task's logits depend bit for bit on
/// nothing but the image, the backbone, and what the task sees: whatever other tasks there are, and in whatever order.
/// This is for masked tasks on a ViT without adapters, in float32 on the CPU; other models run through
/// VisionModel::task_logits, which is the naive twin of this.
class TaskClassifier {
 public:
  /// Packs the model's weights of this moment: what changes later is not seen.
  explicit TaskClassifier(std::shared_ptr<const models::VisionModel> model);
  ~TaskClassifier();

  /// pixels [B,C,H,W], normalised -> the logits [B,K] of "base" and of each task, in the order of
  /// VisionModel::task_logits.
  std::vector<models::TaskLogits> operator()(const at::Tensor& pixels) const;

  /// Whether class rows run beside the model's own, and not through the model.
  bool is_packed() const { return packed_ != nullptr; }
  const models::VisionModel& model() const { return *model_; }

 private:
  struct Packed;
  std::shared_ptr<const models::VisionModel> model_;
  ops::PackedMaps maps_;
  std::unique_ptr<const Packed> packed_;
};

}  // namespace mnemo::infer
