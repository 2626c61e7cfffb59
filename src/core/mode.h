#pragma once

namespace mnemo::core {

/// Training (dropout, updated caches, training lengths) or evaluation.
enum class Mode { evaluate, train };

}  // namespace mnemo::core
