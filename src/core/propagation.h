#pragma once

namespace mnemo::core {

/// How the memory rows of a layer are passed on to later layers.
///   none      they are keys and values of that layer only
///   first     rows of the first layer pass through all later layers
///   added     each layer adds its own rows to those from below
///   appended  each layer appends its own rows to those from below
enum class Propagation { none, first, added, appended };

}  // namespace mnemo::core
