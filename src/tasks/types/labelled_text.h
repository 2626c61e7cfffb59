#pragma once

#include "data/answers/labelled_text.h"
#include "tasks/classification.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// How texts become documents for a model, and these its segments, of at most max_length tokens in all.
data::LabelledTextShape labelled_text_shape(const models::ModelOptions& model, int64_t max_length);
ClassificationOptions labelled_text_segments(const data::LabelledTextOptions& texts, int64_t max_length);

/// Texts, or pairs of texts, with a label each: tasks::Classification.
class LabelledTextSpec final : public TaskSpec {
 public:
  using Options = data::LabelledTextOptions;
  explicit LabelledTextSpec(const base::Node& table);
  /// A table or folder that data::find_labelled recognises.
  static std::optional<base::Node> found_in(const std::string& path);

  const Options& options() const { return options_; }
  /// Tokens of a text at most.
  int64_t max_length(const models::ModelOptions& model) const;

  bool takes_segments_per_step() const override { return false; }
  std::string describe() const override;
  std::string targets() const override { return "texts"; }
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  std::string starting_recipe() const override;
  std::optional<DataShape> usual_shape() const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// How many texts of each label there are, and the first texts of a part.
  Shown show(const ShowOptions& options) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
