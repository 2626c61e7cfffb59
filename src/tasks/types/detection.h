#pragma once

#include "data/detection/detection_options.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// Objects in images, for a detector: tasks::Detection.
class DetectionSpec final : public TaskSpec {
 public:
  using Options = data::DetectionOptions;
  explicit DetectionSpec(const base::Node& table);
  /// A file of COCO instances, or a folder in another of its formats.
  static std::optional<base::Node> found_in(const std::string& path);

  InputKind input() const override { return InputKind::images; }
  bool detects() const override { return true; }
  bool takes_segments_per_step() const override { return false; }
  std::string counted() const override { return "images"; }
  /// Patches of 4 x 4 of a small image: the first stage of a pyramid.
  int64_t rows_of_each() const override { return 4096; }
  bool shows_samples() const override { return false; }
  std::string describe() const override;
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  std::string starting_recipe() const override { return "objects"; }
  bool completes(const models::ModelOptions& model) const override;
  std::optional<DataShape> usual_shape() const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// Runs one small image, so that an unsupported backbone is found before anything is written.
  void check_model(const models::Model& model, const DataShape& shape) const override;
  std::map<std::string, std::string> model_files(const models::ModelOptions& model) const override;
  Shown show(const ShowOptions& options) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
