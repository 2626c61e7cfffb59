#pragma once

#include "core/state.h"

namespace mnemo::core {

/// Whether a field of the model's own state is rows of its last inputs (it has a dimension M), of which a mean over
/// batches, steps or checkpoints says nothing: the newest counts. Other floating-point fields are means themselves.
inline bool is_last_inputs(const Field& field) { return !field.per_sequence() && field.dim("M") >= 0; }

}  // namespace mnemo::core
