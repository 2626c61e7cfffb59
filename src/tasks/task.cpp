#include "tasks/task.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "core/memory.h"
#include "core/model.h"
#include "ops/label_smoothing.h"

namespace mnemo::tasks {

double Evaluation::at(std::string_view name) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  base::ensure(found != metrics.end(), "an evaluation has no metric '{}'", name);
  return found->second;
}

data::TokenSegment to(const data::TokenSegment& segment, at::Device device) {
  if (device.is_cpu()) return segment;
  data::TokenSegment moved = segment;
  for (at::Tensor* tensor : {&moved.tokens, &moved.targets, &moved.valid, &moved.pixels, &moved.soft_targets,
                             &moved.source, &moved.source_valid, &moved.token_types}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  // Check on the host first whether any row starts a document; most segments have none.
  if (moved.reset.defined()) moved.reset = moved.reset.any().item<bool>() ? moved.reset.to(device) : at::Tensor();
  return moved;
}

data::TokenSegment rows(const data::TokenSegment& segment, int64_t first, int64_t count) {
  if (first == 0 && count == segment.targets.size(0)) return segment;
  data::TokenSegment part = segment;
  for (at::Tensor* tensor : {&part.tokens, &part.targets, &part.reset, &part.valid, &part.pixels, &part.soft_targets,
                             &part.source, &part.source_valid, &part.token_types}) {
    if (tensor->defined()) *tensor = tensor->narrow(0, first, count);
  }
  return part;
}

core::Segment model_input(const data::TokenSegment& segment, core::Mode mode) {
  core::Segment input;
  input.tokens = segment.tokens;
  input.valid = segment.valid;
  input.pixels = segment.pixels;
  input.source = segment.source;
  input.source_valid = segment.source_valid;
  input.token_types = segment.token_types;
  input.mode = mode;
  return input;
}

TokenLoss token_loss(const core::Model& model, const core::StepResult& step, const data::TokenSegment& segment,
                     int64_t targets, double auxiliary_share) {
  TokenLoss loss;
  const auto count = static_cast<double>(targets);
  if (segment.num_targets > 0 && segment.label_smoothing > 0.0) {
    // The head is a large part of a translation model: padding does not pass through it.
    const at::Tensor all = segment.targets.flatten(), real = (all != base::kIgnoreTarget).nonzero().squeeze(1);
    const at::Tensor hidden = step.hidden.flatten(0, 1).index_select(0, real);
    const ops::SmoothedLoss smoothed = ops::label_smoothing(model.logits(hidden), all.index_select(0, real),
                                                            segment.label_smoothing, base::kIgnoreTarget);
    loss.nll = smoothed.nll.sum().div(count);
    loss.total = smoothed.smoothed.sum().div(count);
  } else if (segment.num_targets > 0) {
    const at::Tensor nll = segment.soft_targets.defined() ? -(at::log_softmax(model.logits(step.hidden), -1) *
                                                              segment.soft_targets.to(step.hidden.scalar_type()))
                                                                 .sum(-1)
                                                          : model.nll(step.hidden, segment.targets);
    loss.nll = nll.sum().div(count);
    loss.total = loss.nll;
  }
  if (auxiliary_share == 0.0) return loss;
  for (const core::AuxiliaryLoss& auxiliary : model.auxiliary_losses(step)) {
    const at::Tensor term = auxiliary.values.mean() * (auxiliary.weight * auxiliary_share);
    loss.total = loss.total.defined() ? loss.total + term : term;
  }
  return loss;
}

}  // namespace mnemo::tasks
