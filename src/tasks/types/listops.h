#pragma once

#include <utility>

#include "data/answers/listops_set.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// The value of nested lists: tasks::Classification with ten classes.
class ListOpsSpec final : public TaskSpec {
 public:
  using Options = data::ListOpsOptions;
  explicit ListOpsSpec(const base::Node& table);
  static std::vector<std::pair<std::string, base::Node>> made();
  /// A file of Long Range Arena.
  static std::optional<base::Node> found_in(const std::string& path);

  bool takes_segments_per_step() const override { return false; }
  std::string describe() const override;
  std::string targets() const override { return "expressions"; }
  bool makes_samples() const override { return options_.train.empty(); }
  MetricInfo metric() const override { return {.loss_name = "nats an expression"}; }
  std::optional<double> chance(const models::ModelOptions& model) const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// The first expressions of a part, in the format of the Long Range Arena.
  Shown show(const ShowOptions& options) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
