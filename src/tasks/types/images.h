#pragma once

#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// Images with one class each: tasks::Images.
class ImageSpec final : public TaskSpec {
 public:
  using Options = data::ImageOptions;
  explicit ImageSpec(const base::Node& table);
  /// Detects the image set in a folder. Throws InputError for a folder without one.
  static std::optional<base::Node> found_in(const std::string& path);

  /// Patches of 16 x 16 in an image of 224 x 224.
  static constexpr int64_t kRowsOfAnImage = 196;

  InputKind input() const override { return InputKind::images; }
  bool classifies_images() const override { return true; }
  bool takes_segments_per_step() const override { return false; }
  std::string counted() const override { return "images"; }
  int64_t rows_of_each() const override { return kRowsOfAnImage; }
  bool measures_training_samples() const override { return true; }
  bool can_check() const override { return true; }
  bool shows_samples() const override { return false; }
  data::ImageOptions images(const models::ModelOptions& model) const override;
  std::string describe() const override;
  MetricInfo metric() const override { return {.loss_name = "nats an image"}; }
  std::vector<MetricInfo> more_metrics() const override;
  std::string starting_recipe() const override { return "photos"; }
  /// Nothing while the number of classes is unknown.
  std::optional<double> chance(const models::ModelOptions& model) const override;
  bool completes(const models::ModelOptions& model) const override;
  std::optional<DataShape> usual_shape() const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// Runs one black image, so that an unsupported image size is detected before anything is written.
  void check_model(const models::Model& model, const DataShape& shape) const override;
  std::map<std::string, std::string> model_files(const models::ModelOptions& model) const override;
  Shown show(const ShowOptions& options) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
