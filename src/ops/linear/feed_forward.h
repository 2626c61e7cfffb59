#pragma once

#include <ATen/core/Tensor.h>

#include "ops/linear/linear.h"

namespace mnemo::ops {

/// y = W_1 gelu(W_0 x + b_0) + b_1 with gelu by erf.
///   x [..,D]  in: weight [F,D]  out: weight [O,F]; both with biases
/// Without a graph, in float32 on the CPU, gelu is our own (to 2e-7 of the largest value), and many rows are
/// processed in tiles whose hidden rows stay in the processor's cache.
at::Tensor feed_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out);

}  // namespace mnemo::ops
