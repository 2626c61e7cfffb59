#include "layers/feed_forward.h"

#include <torch/types.h>

#include "ops/activate.h"
#include "ops/activation.h"
#include "ops/linear/feed_forward.h"
#include "ops/linear/linear.h"

namespace mnemo::layers {

FeedForward::FeedForward(const Scope& scope, int64_t dim, int64_t hidden, ops::Activation act, double std, bool gated,
                         bool bias)
    : in(scope / "0", dim, hidden, bias, std), activation(act) {
  if (gated) gate = Linear(scope / "gate", dim, hidden, bias, std);
  out = Linear(scope / "1", hidden, dim, bias, std);
}

at::Tensor FeedForward::operator()(const at::Tensor& x, double p, bool training) const {
  if (activation == ops::Activation::gelu && !gated() && in.bias.defined() && (p == 0.0 || !training))
    return ops::feed_forward(x, {in.weight, in.bias}, {out.weight, out.bias});
  if (!gated()) return out(layers::dropout(ops::activate(activation, in(x)), p, training));
  const auto maps = ops::linear_maps(x, {{gate.weight, gate.bias}, {in.weight, in.bias}});
  return out(layers::dropout(ops::activate(activation, maps[0]) * maps[1], p, training));
}

}  // namespace mnemo::layers
