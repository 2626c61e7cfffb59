#include "tasks/greedy.h"

#include <torch/types.h>

#include <algorithm>

#include "core/model.h"
#include "core/state.h"
#include "tasks/task.h"

namespace mnemo::tasks {

at::Tensor greedy_predictions(const core::Model& model, const data::SampleBatch& batch, int64_t segment_size) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const int64_t rows = batch.inputs.size(0), length = batch.inputs.size(1);
  // Positions at which any sample has an answer symbol: the next position cannot run in the same call.
  const at::Tensor asked_anywhere = batch.answer.any(0).contiguous();
  const auto* asked = asked_anywhere.const_data_ptr<bool>();
  const at::Tensor answer = batch.answer.to(device),
                   valid = batch.valid.defined() ? batch.valid.to(device) : at::Tensor();
  at::Tensor inputs = batch.inputs.to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor predictions = at::full({rows, length}, -1, inputs.options());
  core::State state = model.initial_state(rows);
  for (int64_t at = 0; at < length;) {
    const int64_t segment_begin = at / segment_size * segment_size,
                  segment_end = std::min(segment_begin + segment_size, length);
    int64_t end = at + 1;
    while (end < segment_end && !asked[end - 1]) ++end;
    core::Segment segment;
    segment.tokens = inputs.narrow(1, at, end - at).contiguous();
    if (valid.defined()) segment.valid = valid.narrow(1, at, end - at).contiguous();
    segment.part = {at == segment_begin, end == segment_end};
    core::StepResult step = model.forward(segment, state);
    state = std::move(step.state);
    if (asked[end - 1]) {
      const at::Tensor logits = model.logits(step.hidden.select(1, end - at - 1));
      const at::Tensor picked = logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1);
      const at::Tensor here = answer.select(1, end - 1);
      predictions.select(1, end - 1).copy_(at::where(here, picked, predictions.select(1, end - 1)));
      // A model that has diverged reads padding here; its symbol counts as wrong already.
      if (end < length) inputs.select(1, end).copy_(at::where(here, picked.clamp_min(0), inputs.select(1, end)));
    }
    at = end;
  }
  return predictions;
}

}  // namespace mnemo::tasks
