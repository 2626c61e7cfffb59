#include "train/weight_average.h"

#include <ATen/ops/_foreach_lerp.h>
#include <torch/types.h>

#include "base/error.h"
#include "core/last_inputs.h"
#include "weights/model_tensors.h"

namespace mnemo::train {

WeightAverage::WeightAverage(const core::Model& model, double decay)
    : model_(model), decay_(decay), last_inputs_(core::last_inputs(model)) {
  for (const auto& [name, tensor] : current()) average_.emplace_back(name, tensor.detach().clone());
}

weights::NamedTensors WeightAverage::current() const {
  weights::NamedTensors floating;
  for (auto& [name, tensor] : weights::model_tensors(model_)) {
    if (tensor.is_floating_point()) floating.emplace_back(name, tensor);
  }
  return floating;
}

void WeightAverage::update() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own, average;
  const weights::NamedTensors now = current();
  base::ensure(now.size() == average_.size(), "the model has {} tensors, its average {}", now.size(), average_.size());
  for (size_t i = 0; i < now.size(); ++i) {
    own.push_back(now[i].second.detach());
    average.push_back(average_[i].second);
  }
  at::_foreach_lerp_(average, own, 1.0 - decay_);
  for (size_t i = 0; i < now.size(); ++i)
    if (last_inputs_.contains(now[i].first)) average[i].copy_(own[i]);
}

void WeightAverage::swap() {
  const at::NoGradGuard no_grad;
  const weights::NamedTensors now = current();
  for (size_t i = 0; i < now.size(); ++i) {
    at::Tensor own = now[i].second.detach();
    const at::Tensor kept = own.clone();
    own.copy_(average_[i].second);
    average_[i].second.copy_(kept);
  }
}

}  // namespace mnemo::train
