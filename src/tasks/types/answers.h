#pragma once

#include <memory>

#include "data/answers/samples.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// Samples that ask for an answer, cut into segments: tasks::Algorithmic.
class AnswerSpec : public TaskSpec {
 public:
  using TaskSpec::TaskSpec;
  DataShape shape(const models::ModelOptions& model) const override;
  std::optional<int64_t> segment_size() const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// An answer of several symbols is made by reading each one back, be it longer than a segment or not; an encoder
  /// cannot.
  void check_model(const models::Model& model, const DataShape& shape) const override;
  Shown show(const ShowOptions& options) const override;

 protected:
  virtual std::shared_ptr<const data::SampleSource> source(bool shuffle, int64_t seed) const = 0;
  virtual const data::AnswerOptions& answer() const = 0;
  /// What --json says beside the samples of `source`.
  virtual base::Node facts(const data::SampleSource& source) const = 0;

 private:
  DataShape shape_of(const data::SampleSource& source) const;
};

}  // namespace mnemo::tasks
