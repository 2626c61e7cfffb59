#pragma once

#include "data/answers/task_file.h"
#include "tasks/types/answers.h"

namespace mnemo::tasks {

/// Question and answer samples from a file.
class TaskFileSpec final : public AnswerSpec {
 public:
  using Options = data::TaskFileOptions;
  explicit TaskFileSpec(const base::Node& table);
  /// A table that begins with the names of its columns.
  static std::optional<base::Node> found_in(const std::string& path);

  std::string describe() const override;

 protected:
  std::shared_ptr<const data::SampleSource> source(bool shuffle, int64_t seed) const override;
  const data::AnswerOptions& answer() const override { return options_.answer; }
  base::Node facts(const data::SampleSource& source) const override;

 private:
  Options options_;
};

}  // namespace mnemo::tasks
