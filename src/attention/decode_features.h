#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/linear_attention.h"

namespace mnemo::attention {

/// The feature map of a head in a decoder: f = elu(x) + 1, relu(W x + b), or factor [sin(W u), cos(W u)] with
/// u = x / (|x| + eps).
struct DecodeFeatures {
  enum class Kind { elu, t2r, rfa } kind = Kind::elu;
  std::vector<float> weight, bias;  ///< [H,m,d], [H,m]
  float factor = 1.0f, eps = 0.0f;

  /// x [d] -> out [features]. own: [H,m,d] in place of `weight`; empty: none
  void operator()(const float* x, int64_t head, int64_t d, int64_t features, const std::vector<float>& own,
                  float* out) const;
};

/// The normaliser (denominator) of a sum of weights.
float divisor_of(const ops::LinearNormaliser& normaliser, float sum, bool causal);

}  // namespace mnemo::attention
