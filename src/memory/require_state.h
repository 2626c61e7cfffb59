#pragma once

#include "core/require_state.h"

namespace mnemo::memory {

using core::require_state;

}  // namespace mnemo::memory
