#pragma once

#include <ATen/core/Tensor.h>

#include "layers/parts.h"

namespace mnemo::ops {
enum class Activation;  // ops/activation.h
}

namespace mnemo::layers {

/// W_1 drop(act(W_0 x + b_0)) + b_1; gated: W_1 drop(act(W_g x + b_g) * (W_0 x + b_0)) + b_1 (Shazeer 2020, eq. 5:
/// SwiGLU with silu, GEGLU with gelu). Names 0, gate and 1 under the scope.
struct FeedForward {
  FeedForward() = default;
  FeedForward(const Scope& scope, int64_t dim, int64_t hidden, ops::Activation activation, double std,
              bool gated = false, bool bias = true);
  at::Tensor operator()(const at::Tensor& x, double dropout = 0.0, bool training = false) const;
  bool gated() const { return gate.weight.defined(); }

  Linear in, gate, out;          ///< gate: without weight if not gated
  ops::Activation activation{};  ///< the first: relu
};

}  // namespace mnemo::layers
