#pragma once

#include <cstdint>

namespace mnemo::base {

/// Targets with this value are excluded from every loss and count: padding, and positions a task does not ask for.
inline constexpr int64_t kIgnoreTarget = -100;

}  // namespace mnemo::base
