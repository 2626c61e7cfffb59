#include "tasks/memory_rows.h"

#include <algorithm>

#include "models/registry.h"

namespace mnemo::tasks {

bool memory_surrounds(const models::ModelOptions& model) {
  return std::any_of(model.memory.begin(), model.memory.end(), [](const base::TypedOptions& memory) {
    return models::Mechanisms::all().memories.find(memory.type()).seam(false) == core::Seam::sequence;
  });
}

}  // namespace mnemo::tasks
