#pragma once

#include <utility>

#include "data/answers/algorithmic.h"
#include "tasks/types/answers.h"

namespace mnemo::tasks {

/// Synthetic samples: copy, reverse, retrieval, quadratic.
class AlgorithmicSpec final : public AnswerSpec {
 public:
  using Options = data::AlgorithmicOptions;
  explicit AlgorithmicSpec(const base::Node& table);
  /// Each task with its name.
  static std::vector<std::pair<std::string, base::Node>> made();

  std::string describe() const override;
  std::optional<double> chance(const models::ModelOptions& model) const override;
  bool endless() const override { return true; }
  void require_places(const core::RowLimit& limit, const models::ModelOptions& model) const override;

 protected:
  std::shared_ptr<const data::SampleSource> source(bool shuffle, int64_t seed) const override;
  const data::AnswerOptions& answer() const override { return options_.answer; }
  base::Node facts(const data::SampleSource& source) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
