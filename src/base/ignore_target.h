#pragma once

#include <cstdint>

namespace mnemo::base {

/// Targets of this value are left out of every loss and count: padding, and what a task does not ask for.
inline constexpr int64_t kIgnoreTarget = -100;

}  // namespace mnemo::base
