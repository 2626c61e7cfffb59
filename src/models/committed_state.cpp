#include "models/committed_state.h"

#include <torch/types.h>

#include <algorithm>

namespace mnemo::models {

void CommittedState::commit(const core::State& state) {
  fields_.clear();
  for (const auto& [field, tensor] : state.fields()) {
    if (!field.per_sequence()) fields_.emplace_back(field.path, tensor.detach().clone());
  }
}

core::State CommittedState::apply(const core::State& fresh) const {
  if (fields_.empty()) return fresh;
  return fresh.map([&](const core::Field& field, const at::Tensor& tensor) {
    if (field.per_sequence()) return tensor;
    const auto found = std::find_if(fields_.begin(), fields_.end(),
                                    [&](const auto& own) { return own.first == field.path; });
    return found == fields_.end() ? tensor : found->second.to(tensor.device(), tensor.scalar_type());
  });
}

}  // namespace mnemo::models
