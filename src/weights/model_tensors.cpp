#include "weights/model_tensors.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "base/printable.h"
#include "core/model.h"
#include "core/state.h"

namespace mnemo::weights {

NamedTensors model_tensors(const core::Model& model) {
  NamedTensors tensors = model.parameters().named();
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (!field.per_sequence()) tensors.emplace_back(field.path, tensor.detach());
  }
  return tensors;
}

layers::Budget budget_of(const TensorFile& file, const std::string& where) {
  int64_t held = 0;
  for (const auto& [name, tensor] : file.tensors) held += tensor.numel();
  const int64_t parameters = 2 * held + (int64_t{1} << 20);
  return {parameters, 16 * parameters, fmt::format("{} holds {} numbers", base::printable(where, 400), held)};
}

void load_model_tensors(const TensorFile& file, core::Model& model, const std::string& where) {
  const at::NoGradGuard no_grad;
  NamedTensors targets = model.parameters().named();
  bool has_shared = false;
  const core::State state = model.initial_state(1).map([&](const core::Field& field, const at::Tensor& tensor) {
    if (field.per_sequence()) return tensor;
    has_shared = true;
    at::Tensor copy = tensor.clone();
    targets.emplace_back(field.path, copy);
    return copy;
  });
  load_into(file, targets, where, {.finite = true});
  if (has_shared) model.commit(state);
}

}  // namespace mnemo::weights
