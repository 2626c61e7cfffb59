#include "tasks/token_loss.h"

#include <torch/types.h>

#include "base/ignore_target.h"
#include "ops/label_smoothing.h"

namespace mnemo::tasks {

TaskLoss token_loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch, int64_t targets) {
  return model.nll(step.hidden, data::token_targets(batch)).sum().div(static_cast<double>(targets));
}

TaskLoss smoothed_token_loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                             int64_t targets, double smoothing) {
  // The head is a large part of a translation model: padding does not pass through it.
  const at::Tensor all = data::token_targets(batch).flatten(), real = (all != base::kIgnoreTarget).nonzero().squeeze(1);
  const at::Tensor hidden = step.hidden.flatten(0, 1).index_select(0, real);
  const ops::SmoothedLoss loss = ops::label_smoothing(model.logits(hidden), all.index_select(0, real), smoothing,
                                                      base::kIgnoreTarget);
  const auto count = static_cast<double>(targets);
  return {loss.nll.sum().div(count), loss.smoothed.sum().div(count)};
}

}  // namespace mnemo::tasks
