#pragma once

#include "models/options.h"

namespace mnemo::tasks {

/// Whether a memory puts rows of its own around the tokens of a segment: in an encoder special tokens are among them.
bool memory_surrounds(const models::ModelOptions& model);

}  // namespace mnemo::tasks
