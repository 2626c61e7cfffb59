#include "tasks/piece_task.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/model.h"
#include "core/state.h"
#include "distributed/shared_batches.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

PieceTaskOptions PieceTaskOptions::of(const TaskSettings& settings) {
  return {settings.batch_size, settings.shuffle, settings.seed, settings.eval_batch_size, settings.eval_samples};
}

void PieceTask::begin(const char* expected) {
  pieces_ = pieces_of(*corpus_.train);
  base::require(!pieces_.empty(), "data.train: {}", expected);
  batches_ = {{static_cast<int64_t>(pieces_.size()), options_.shuffle, options_.seed}, options_.batch_size};
}

void PieceTask::count(const core::Model& model, const at::Tensor& hidden, const data::Batch& segment,
                      TokenCounts& counts) const {
  counts.add(model, hidden, data::token_targets(segment));
}

std::optional<Evaluation> PieceTask::evaluate(const core::Model& model, data::Part part) const {
  constexpr int64_t kHeldOutEpoch = -1;  // those of a training count from 0
  if (!has(part)) return std::nullopt;
  const auto& text = corpus_.part(part);
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const Pieces pieces = pieces_of(*text);
  distributed::SharedBatches shared(ranks());
  for_own_batches(shared, static_cast<int64_t>(pieces.size()), options_.eval_samples, options_.eval_batch_size,
                  [&](const std::vector<int64_t>& numbers) {
                    TokenCounts counts;
                    core::State state = model.initial_state(static_cast<int64_t>(numbers.size()));
                    const std::vector<int64_t> epochs(numbers.size(), kHeldOutEpoch);
                    for (const data::Batch& segment : segments_of(*text, pieces, {numbers, epochs})) {
                      const data::Batch moved = to(segment, device);
                      core::StepResult step = model.forward(moved.input, state);
                      state = std::move(step.state);
                      count(model, step.hidden, moved, counts);
                    }
                    shared.add(counts.values());
                  });
  return TokenCounts::sum(shared).evaluation();
}

}  // namespace mnemo::tasks
