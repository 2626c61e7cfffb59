#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/algorithmic.h"
#include "tasks/task.h"

namespace mnemo::tasks {

struct AlgorithmicTrainOptions {
  int64_t batch_size = 64;
  int64_t seed = 0;
  int64_t eval_batch_size = 64;
  int64_t eval_samples = 512;
};

/// Copy, reverse or retrieval, teacher forced: a sample is one sequence, cut into segments of the model's size; only the
/// answer counts. The metric is the share of answer tokens predicted right on samples that training never sees.
class Algorithmic final : public Task {
 public:
  Algorithmic(const data::AlgorithmicOptions& task, const AlgorithmicTrainOptions& options);

  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  /// All segments of a batch. Throws InputError if a sample's length is no multiple of segment_size.
  std::vector<data::TokenSegment> next(int64_t segment_size) override;
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::AlgorithmicTask& task() const { return task_; }

 private:
  std::vector<data::TokenSegment> segments(data::Part part, int64_t number, int64_t batch_size, int64_t segment_size) const;

  data::AlgorithmicTask task_;
  AlgorithmicTrainOptions options_;
  int64_t next_batch_ = 0;
};

}  // namespace mnemo::tasks
