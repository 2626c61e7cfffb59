#pragma once

#include "core/state.h"

namespace mnemo::models {

/// What of a translation model's state goes on from a pair to the next: its memories, without what the last target read
/// of its source.
core::State carried_state(const core::State& state);

}  // namespace mnemo::models
