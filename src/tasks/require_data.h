#pragma once

#include "base/node.h"

namespace mnemo::tasks {

/// Throws InputError that names the key and the remedy if the data.train of a complete [data] table is a path where
/// nothing is.
void require_data(const base::Node& table);

}  // namespace mnemo::tasks
