#include "tasks/start_documents.h"

#include <torch/types.h>

#include "models/carried_state.h"

namespace mnemo::tasks {

core::State start_documents(const core::Model& model, const core::State& state, const at::Tensor& reset) {
  if (!reset.defined() || !reset.any().item<bool>()) return state;
  const bool pairs = model.input_kind() == core::InputKind::pairs;
  return core::reset_rows(pairs ? models::carried_state(state) : state, reset, model.initial_state(reset.size(0)));
}

}  // namespace mnemo::tasks
