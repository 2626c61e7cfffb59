#pragma once

#include <ATen/core/Tensor.h>

#include "core/model.h"

namespace mnemo::tasks {

/// `state` with the rows of reset [B] bool started again: they become model.initial_state(B)'s, gradient included. The
/// same state where reset is undefined or all false.
core::State start_documents(const core::Model& model, const core::State& state, const at::Tensor& reset);

}  // namespace mnemo::tasks
