#include "tasks/token_counts.h"

#include <torch/types.h>

#include "core/model.h"

namespace mnemo::tasks {

TokenCounts TokenCounts::sum(const distributed::SharedBatches& shared) {
  TokenCounts total;
  for (const std::vector<double>& counts : shared.all()) {
    const auto predictions = static_cast<int64_t>(counts[1]);
    total.likelihood_.add(counts[0], predictions);
    total.accuracy_.add(static_cast<int64_t>(counts[2]), predictions);
  }
  return total;
}

void TokenCounts::add(const core::Model& model, const at::Tensor& hidden, const at::Tensor& targets) {
  likelihood_.add(model.nll(hidden, targets), targets);
  accuracy_.add_logits(model.logits(hidden), targets);
}

std::vector<double> TokenCounts::values() const {
  return {likelihood_.nll_sum(), static_cast<double>(likelihood_.count()), static_cast<double>(accuracy_.correct())};
}

Evaluation TokenCounts::evaluation() const {
  return {{{"nll", likelihood_.nll()}, {"perplexity", likelihood_.perplexity()}, {"accuracy", accuracy_.value()}},
          likelihood_.count()};
}

}  // namespace mnemo::tasks
