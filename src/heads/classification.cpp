#include "heads/classification.h"

#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"

namespace mnemo::heads {

Classification::Classification(const ClassificationOptions& options, const layers::Scope& scope, int64_t dim,
                               double std)
    : options_(options) {
  base::require(options.num_classes != 1, "model: expected head.num_classes of at least 2, found {}",
                options.num_classes);
  if (!has_classes()) return;
  if (options.pooler == "tanh") pooler_ = layers::Linear(scope / "pooler", dim, dim, true, std);
  if (options.hidden_dim > 0) hidden_ = layers::Linear(scope / "hidden", dim, options.hidden_dim, true, std);
  const int64_t width = options.hidden_dim > 0 ? options.hidden_dim : dim;
  classifier_ = layers::Linear(scope / "classifier", width, options.num_classes, true, std);
}

at::Tensor Classification::logits(const at::Tensor& hidden) const {
  base::require(has_classes(), "{}", "model: it has no head (head.num_classes = 0); train one with mnemo finetune");
  at::Tensor h = hidden;
  if (pooler_.weight.defined()) h = at::tanh(pooler_(h));
  if (hidden_.weight.defined()) h = at::relu(hidden_(h));
  return classifier_(h);
}

at::Tensor Classification::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  return at::cross_entropy_loss(logits(hidden).flatten(0, -2), targets.reshape({-1}), {}, at::Reduction::None,
                                base::kIgnoreTarget)
      .view(targets.sizes());
}

at::Tensor Classification::mean(const at::Tensor& rows, const at::Tensor& valid) {
  if (!valid.defined()) return rows.mean(1, true);
  const at::Tensor real = valid.unsqueeze(-1);
  return rows.masked_fill(real.logical_not(), 0.0).sum(1, true) / real.sum(1, true).clamp_min(1);
}

}  // namespace mnemo::heads
