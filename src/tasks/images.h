#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image_batches.h"
#include "tasks/task.h"

namespace mnemo::tasks {

/// The classes of a batch of images.
struct ImageTargets {
  at::Tensor labels;     ///< [B,1] int64
  at::Tensor soft = {};  ///< [B,1,K]: class probabilities, where labels are mixed or smoothed
  template <class F>
  void visit(F&& f) {
    f("labels", labels);
    f("soft", soft);
  }
};

struct ImageTrainOptions {
  int64_t batch_size = 32;
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 32;
  int64_t eval_samples = 512;      ///< maximum number of evaluation samples
  int64_t eval_train_samples = 0;  ///< number of training images that evaluations of other parts measure too
};

/// Image classification, for a model that reads pixels and makes one prediction per image; labels may be mixed and
/// smoothed in training.
///
/// Metrics on images prepared with the test crop:
///   accuracy        images whose class has the largest logit (top-1)
///   top5_accuracy   images whose class has one of the five largest logits, of models with more classes
///   nll             nats per image
///   skipped         number of skipped unreadable images, if data.broken = "skip"
///   train_accuracy, train_nll   of eval_train_samples training images, prepared in the same way
class Images final : public Task {
 public:
  Images(data::ImageSets sets, const data::ImageOptions& data, const ImageTrainOptions& options);

  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  bool keeps_places() const override { return true; }
  int64_t batch_size() const override { return options_.batch_size; }
  /// One segment of pixels; the segment size does not apply.
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  /// -sum_k t(b,k) log p(k) / targets, t being the soft targets, or 1 for the label alone.
  TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                int64_t targets) const override;
  double epoch() const override;
  bool has(data::Part part) const override { return sets_.part(part) != nullptr; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  /// Throws InputError if an image changes the memory that the next one in its place reads.
  void require_shareable(const core::Model& model) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::ImageSets& sets() const { return sets_; }

 private:
  /// Top-1, top-5 and nats of `samples` images of a set.
  Evaluation measure(const core::Model& model, const std::shared_ptr<const data::ImageSet>& set, int64_t samples) const;

  data::ImageSets sets_;
  data::ImageOptions data_;
  ImageTrainOptions options_;
  int64_t fingerprint_;
  data::TrainingImages training_;
};

}  // namespace mnemo::tasks
