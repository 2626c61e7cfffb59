#pragma once

#include "core/input.h"
#include "models/options.h"

namespace mnemo::models {

/// The input of a translation model, with the longest source and target that its positions and attentions allow.
core::PairInput pair_input_of(const ModelOptions& options);

}  // namespace mnemo::models
