#pragma once

#include "core/input.h"
#include "models/options.h"

namespace mnemo::models {

/// What a translation model reads, with the longest source and target that its positions and attentions have places
/// for.
core::PairInput pair_input_of(const ModelOptions& options);

}  // namespace mnemo::models
