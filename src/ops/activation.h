#pragma once

namespace mnemo::ops {

/// The activation of a feed-forward: max(x, 0); x Phi(x); x Phi(x) with Phi by tanh; x / (1 + e^-x).
enum class Activation { relu, gelu, gelu_tanh, silu };

}  // namespace mnemo::ops
