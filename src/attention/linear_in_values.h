#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>

#include "core/inspection.h"
#include "ops/weights_from_outputs.h"

namespace mnemo::attention {

/// Computes the attention map of an attention whose heads are linear in its values. run(replace) -> heads [B,Q,H*d]
/// with replaced values, for `num_heads` heads. Keys on the left that were not even projected get weight 0.
template <class Run>
core::AttentionView inspect_linear_in_values(const core::AttentionInput& input, int64_t num_heads, const Run& run) {
  const at::Tensor weights = ops::weights_from_outputs([&](const ops::ReplaceValues& replace) {
    return run(replace).unflatten(-1, {num_heads, -1}).transpose(1, 2);
  });
  return {{{"attention", core::MapAxis::queries, core::MapAxis::keys,
            at::constant_pad_nd(weights, {input.table.num_keys() - weights.size(3), 0})}}};
}

/// An attention whose heads are linear in its values. Base: ProjectedAttention, or one that derives from it.
template <class Base>
class LinearInValues : public Base {
 public:
  using Heads = core::CoreAttention::Heads;
  Heads heads(const core::AttentionInput& input, const core::State& state) const final { return run(input, state, {}); }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& /*history*/) const override {
    return inspect_linear_in_values(input, this->maps_.num_heads, [&](const ops::ReplaceValues& replace) {
      return run(input, state, replace).heads;
    });
  }

 protected:
  using Base::Base;
  /// heads() with replaced values.
  virtual Heads run(const core::AttentionInput& input, const core::State& state,
                    const ops::ReplaceValues& replace) const = 0;
};

}  // namespace mnemo::attention
