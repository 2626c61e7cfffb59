#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/answers/algorithmic.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {

struct AlgorithmicTrainOptions {
  int64_t batch_size = 64;
  int64_t seed = 0;
  int64_t eval_batch_size = 64;
  int64_t eval_samples = 512;  ///< maximum number of evaluation samples
};

/// Question and answer samples, synthetic (copy, reverse, retrieval, quadratic) or from a file. A sample is one
/// sequence, divided into segments of the model's size or into `num_segments`; only the answer counts for the loss.
/// Training uses teacher forcing.
///
/// Metrics on samples that are not used in training:
///   accuracy                  correct symbols of the answer, with the option `decoding`
///   teacher_forced_accuracy   same with the correct symbols as input; equal if answers are a single symbol
///   result_accuracy           samples whose whole result is correct (all of the answer, or its last field), with the
///                             option `decoding`
///   nll                       nats per symbol, teacher forced, including padding that belongs to the answer
class Algorithmic final : public TokenTask {
 public:
  Algorithmic(std::shared_ptr<const data::SampleSource> source, const data::AnswerOptions& answer,
              const AlgorithmicTrainOptions& options);
  /// Synthetic samples, generated from options.seed.
  Algorithmic(const data::AlgorithmicOptions& task, const AlgorithmicTrainOptions& options);

  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return options_.batch_size; }
  /// All segments of a batch. Throws InputError if `num_segments` is given and requires segments of another length.
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  double epoch() const override;
  bool has(data::Part part) const override { return evaluation_samples(part) > 0; }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

  const data::SampleSource& source() const { return *source_; }
  /// Segment size implied by `num_segments`; empty if the model's size is used.
  std::optional<int64_t> segment_size() const;

 private:
  struct Counts {
    metrics::Accuracy symbols, results;
  };
  void require_segment_size(int64_t segment_size) const;
  int64_t evaluation_samples(data::Part part) const;
  void count(const at::Tensor& predictions, const data::SampleBatch& batch, Counts& counts) const;
  at::Tensor teacher_forced(const core::Model& model, const data::SampleBatch& batch,
                            metrics::Likelihood& likelihood) const;

  std::shared_ptr<const data::SampleSource> source_;
  data::AnswerOptions answer_;
  AlgorithmicTrainOptions options_;
  int64_t next_batch_ = 0;
};

}  // namespace mnemo::tasks
