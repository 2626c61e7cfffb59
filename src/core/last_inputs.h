#pragma once

#include <set>
#include <string>

#include "core/model.h"
#include "core/state.h"

namespace mnemo::core {

/// Whether a field of the model's own state is rows of its last inputs (it has a dimension M), of which a mean over
/// batches, steps or checkpoints says nothing: the newest counts. Other floating-point fields are means themselves.
inline bool is_last_inputs(const Field& field) { return !field.per_sequence() && field.dim("M") >= 0; }

/// The paths of a model's fields of that kind.
inline std::set<std::string> last_inputs(const Model& model) {
  std::set<std::string> paths;
  for (const auto& [field, tensor] : model.initial_state(1).fields())
    if (is_last_inputs(field)) paths.insert(field.path);
  return paths;
}

}  // namespace mnemo::core
