#pragma once

namespace mnemo::layers {

/// The kinds of layers::Norm.
enum class NormType { layer, rms };

}  // namespace mnemo::layers
