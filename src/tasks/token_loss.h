#pragma once

#include <cstdint>

#include "core/model.h"
#include "data/batch.h"
#include "tasks/task.h"

namespace mnemo::tasks {

/// The loss of tokens, for a model with a head of tokens or of classes: sum nll / targets, over the targets of a batch
/// that has data::TokenTargets. targets: as in Task::loss().
TaskLoss token_loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch, int64_t targets);

/// The same, trained with label smoothing (ops/label_smoothing.h); `reported` is the loss without it.
TaskLoss smoothed_token_loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                             int64_t targets, double smoothing);

/// A task whose batches have data::TokenTargets.
class TokenTask : public Task {
 public:
  TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                int64_t targets) const override {
    return token_loss(model, step, batch, targets);
  }
};

}  // namespace mnemo::tasks
