#include "train/gradient_watch.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>

#include "base/log.h"
#include "base/text_format.h"
#include "core/model.h"

namespace mnemo::train {
namespace {

/// Parameters that the state at the start of a document is made of. They have a gradient where a document starts, which
/// after a resume may be many steps later.
std::set<std::string> in_initial_state(const core::Model& model) {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  for (const layers::Parameter& parameter : model.parameters().all()) {
    if (!parameter.tensor.requires_grad()) continue;
    tensors.push_back(parameter.tensor);
    names.push_back(parameter.name);
  }
  at::Tensor sum;
  for (const auto& [field, value] : model.initial_state(1).fields()) {
    if (!value.defined() || !value.requires_grad()) continue;
    sum = sum.defined() ? sum + value.sum() : value.sum();
  }
  if (!sum.defined()) return {};
  const auto gradients = torch::autograd::grad({sum}, tensors, {}, false, false, /*allow_unused=*/true);
  std::set<std::string> reached;
  for (size_t i = 0; i < names.size(); ++i) {
    if (gradients[i].defined()) reached.insert(names[i]);
  }
  return reached;
}

}  // namespace

void GradientWatch::look(const core::Model& model, const std::vector<layers::Parameter>& trained, bool factored,
                         int64_t steps) {
  // A layer that is dropped, or a memory that is still empty, has no gradient in one step but in one of the next.
  constexpr int64_t kWatchedSteps = 8;
  if (watched_ < 0) return;
  if (watched_ == 0) {
    for (const layers::Parameter& parameter : trained) {
      if (factored || parameter.tensor.requires_grad()) without_.insert(parameter.name);
    }
    for (const std::string& name : in_initial_state(model)) without_.erase(name);
  }
  for (const layers::Parameter& parameter : trained) {
    if (parameter.tensor.grad().defined()) without_.erase(parameter.name);
  }
  if (++watched_ < std::min(kWatchedSteps, steps) && !without_.empty()) return;
  watched_ = -1;
  if (without_.empty()) return;
  base::log_warning(
      "training: no gradient reaches {} of {} parameters, which stay as they are: {}; a memory needs "
      "train.segments_per_step above 1 and a bptt_depth above 0 to learn what to write",
      without_.size(), trained.size(), base::listed({without_.begin(), without_.end()}, 8));
}

bool warn_of_cut_memories(const core::Model& model, int64_t segments) {
  // Rows that begin as parameters are there to be learned; a cache may be meant to have no gradient.
  std::vector<std::string> cut, without_depth;
  for (const auto& [field, value] : model.initial_state(1).fields()) {
    if (!field.per_sequence() || !value.defined() || !value.is_floating_point()) continue;
    if (model.bptt_depth(field.path) != 0)
      cut.push_back(field.path);
    else if (value.requires_grad())
      without_depth.push_back(field.path);
  }
  if (!without_depth.empty())
    base::log_warning(
        "training: nothing learns what to remember: no gradient crosses a segment's boundary, so none reaches the "
        "segment that wrote {}; expected a bptt_depth of 1 or more, found 0",
        base::listed(without_depth, 3));
  if (cut.empty() || segments > 1) return false;
  base::log_warning(
      "training: nothing learns what to remember: a step reads one segment, so no gradient reaches the segment that "
      "wrote {}; expected train.segments_per_step of 2 or more, or train.replay, found 1",
      base::listed(cut, 3));
  return true;
}

}  // namespace mnemo::train
