#include "infer/task_classifier.h"

#include <torch/types.h>

#include "core/backbone.h"
#include "memory/learnable_tokens.h"
#include "models/model.h"

namespace mnemo::infer {

TaskClassifier::TaskClassifier(std::shared_ptr<const models::Model> model) : model_(std::move(model)) {
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& parameter : model_->parameters().all()) {
    if (parameter.kind == layers::ParameterKind::weight) maps_.add(parameter.tensor);
  }
  const ops::PackedMapsGuard packed_maps(maps_);
  if (model_->tasks() != nullptr) runner_ = model_->task_backbone()->task_runner(model_->tasks()->tasks());
}

std::vector<models::TaskLogits> TaskClassifier::operator()(const at::Tensor& pixels) const {
  const at::NoGradGuard no_grad;
  const ops::PackedMapsGuard packed_maps(maps_);
  return runner_ ? model_->task_logits(runner_->run(pixels))
                 : model_->task_logits({.tokens = {}, .rows = {}, .pixels = pixels});
}

}  // namespace mnemo::infer
