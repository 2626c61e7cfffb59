#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model.h"
#include "distributed/shared_batches.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/task.h"

namespace mnemo::tasks {

/// Counts of an evaluation over predicted tokens.
class TokenCounts {
 public:
  /// The sum over the batches of all ranks, of which each has added its values() to `shared`.
  static TokenCounts sum(const distributed::SharedBatches& shared);

  /// hidden [...,D] of the model, targets [...].
  void add(const core::Model& model, const at::Tensor& hidden, const at::Tensor& targets);
  /// The counts as numbers for sum().
  std::vector<double> values() const;
  /// "nll", "perplexity" and "accuracy".
  Evaluation evaluation() const;

 private:
  metrics::Accuracy accuracy_;
  metrics::Likelihood likelihood_;
};

}  // namespace mnemo::tasks
