#pragma once

namespace mnemo::ops {

/// The activation of a feed-forward: max(x, 0); x Phi(x); and x Phi(x) with Phi by tanh.
enum class Activation { relu, gelu, gelu_tanh };

}  // namespace mnemo::ops
