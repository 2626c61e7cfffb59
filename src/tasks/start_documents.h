#pragma once

#include <ATen/core/Tensor.h>

#include "core/state.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::tasks {

/// Resets the rows of `state` where reset [B] bool is true to those of model.initial_state(B), including gradients.
/// Returns the same state if reset is undefined or all false.
core::State start_documents(const core::Model& model, const core::State& state, const at::Tensor& reset);

}  // namespace mnemo::tasks
