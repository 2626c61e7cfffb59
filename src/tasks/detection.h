#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/detection/detection_sets.h"
#include "tasks/task.h"

namespace mnemo::tasks {

struct DetectionTrainOptions {
  int64_t batch_size = 2;
  int64_t divisor = 32;  ///< sides of batches are multiples of this
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;  ///< images of a pass in evaluation; the result does not depend on it
  int64_t eval_samples = 512;    ///< maximum number of images that an evaluation measures, evenly spread
  bool masks = false;            ///< the detector gives masks too
};

/// Finding objects in images, with a detector (heads::DetectorHead).
///
/// No image reads padding: its losses and detections do not depend on the others of its batch. A head that sees padding
/// (heads::DetectorPadding) is trained with it, and measured an image at a time.
///
/// Metrics are COCO's numbers from 0 to 1: ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1,
/// ar10, ar100, ar_small, ar_medium, ar_large, and with masks the same after "mask_". Those with nothing to measure (no
/// small objects) are left out, but for ap, which is 0 then. Notes: AP of each class.
class Detection final : public Task {
 public:
  Detection(data::DetectionSets sets, const data::DetectionOptions& data, const DetectionTrainOptions& options);

  std::string metric() const override { return "ap"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  std::vector<std::string> loss_parts(const core::Model& model) const override;
  /// The sum of the head's losses, means over the images of the step. Anchors and regions are sampled by the seed and
  /// the image's number in the run.
  TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                int64_t targets) const override;
  double epoch() const override;
  bool has(data::Part part) const override { return sets_.part(part) != nullptr; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  /// Some images of the validation part with what the model finds, and what is annotated.
  std::string picture(const core::Model& model) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  /// The detections of eval_samples images of a part, evenly spread, by all ranks together; with the annotations
  /// of these images. Throws InputError if there is no such part.
  struct Found {
    data::CocoSet set;
    std::vector<data::CocoDetection> detections;
  };
  Found detections(const core::Model& model, data::Part part) const;

 private:
  std::vector<data::CocoDetection> share_of(const core::Model& model,
                                            const std::shared_ptr<const data::AnnotatedImages>& images) const;
  std::vector<data::CocoDetection> of_all_ranks(std::vector<data::CocoDetection> own) const;

  data::DetectionSets sets_;
  data::DetectionOptions data_;
  DetectionTrainOptions options_;
  int64_t fingerprint_;
  data::TrainingDetections training_;
};

}  // namespace mnemo::tasks
