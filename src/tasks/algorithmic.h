#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/answers/algorithmic.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/task.h"

namespace mnemo::tasks {

struct AlgorithmicTrainOptions {
  int64_t batch_size = 64;
  int64_t seed = 0;
  int64_t eval_batch_size = 64;
  int64_t eval_samples = 512;  ///< measured, at most
};

/// Samples that ask for an answer, made ones (copy, reverse, retrieval, quadratic) or those of a file: a sample is one
/// sequence, cut into segments of the model's size, or into `num_segments`; only the answer counts, teacher forced in
/// training.
///
/// Measured on samples that training never sees:
///   accuracy                  symbols of the answer that are right, as the option `decoding` says
///   teacher_forced_accuracy   the same with the right symbols as input; equal where an answer is one symbol
///   result_accuracy           samples whose whole result is right (all of the answer, or its last field), as
///   `decoding` says
///   nll                       nats a symbol, teacher forced, padding that is asked for included
class Algorithmic final : public Task {
 public:
  Algorithmic(std::shared_ptr<const data::SampleSource> source, const data::AnswerOptions& answer,
              const AlgorithmicTrainOptions& options);
  /// Made samples, from options.seed.
  Algorithmic(const data::AlgorithmicOptions& task, const AlgorithmicTrainOptions& options);

  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  /// All segments of a batch. Throws InputError where `num_segments` is given and asks for segments of another length.
  std::vector<data::TokenSegment> next(const core::ModelInput& input) override;
  double epoch() const override;
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::SampleSource& source() const { return *source_; }
  /// Tokens of a segment that `num_segments` asks for; nothing where the model's size decides.
  std::optional<int64_t> segment_size() const;

 private:
  struct Counts {
    metrics::Accuracy symbols, results;
  };
  void require_segment_size(int64_t segment_size) const;
  void count(const at::Tensor& predictions, const data::SampleBatch& batch, Counts& counts) const;
  at::Tensor teacher_forced(const core::Model& model, const data::SampleBatch& batch,
                            metrics::Likelihood& likelihood) const;

  std::shared_ptr<const data::SampleSource> source_;
  data::AnswerOptions answer_;
  AlgorithmicTrainOptions options_;
  int64_t next_batch_ = 0;
};

}  // namespace mnemo::tasks
