#include "tasks/start_documents.h"

#include <torch/types.h>

#include "core/model.h"

namespace mnemo::tasks {

core::State start_documents(const core::Model& model, const core::State& state, const at::Tensor& reset) {
  if (!reset.defined() || !reset.any().item<bool>()) return state;
  return core::reset_rows(model.carried(state), reset, model.initial_state(reset.size(0)));
}

}  // namespace mnemo::tasks
