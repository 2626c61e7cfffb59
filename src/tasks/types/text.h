#pragma once

#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// A text for language modelling: tasks::LanguageModel.
class TextSpec final : public TaskSpec {
 public:
  using Options = data::TextOptions;
  explicit TextSpec(const base::Node& table);
  /// A text file, a folder of texts or a pattern of them (data::find_text), tokenized as characters.
  static std::optional<base::Node> found_in(const std::string& path);

  const data::TextOptions* text() const override { return &options_; }
  std::string describe() const override;
  /// Bits per byte or character; for words, perplexity.
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  std::string starting_recipe() const override { return "text"; }
  bool completes(const models::ModelOptions& model) const override;
  std::optional<DataShape> usual_shape() const override;
  DataShape shape(const models::ModelOptions& model) const override;
  void require_places(const core::RowLimit& limit, const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  void check_model(const models::Model& model, const DataShape& shape) const override;
  std::map<std::string, std::string> model_files(const models::ModelOptions& model) const override;
  Shown show(const ShowOptions& options) const override;

 private:
  Options options_;
};

/// Output of `mnemo data` for a text: sizes and vocabulary. Throws InputError if one part is asked for.
Shown show_text(const data::TextOptions& text, const ShowOptions& options);

}  // namespace mnemo::tasks
