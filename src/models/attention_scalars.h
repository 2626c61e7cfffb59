#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/inspection.h"

namespace mnemo::models {

/// Values that a backbone's attentions log during training, such as "layers.0.sigma_lambda".
template <class Backbone>
std::vector<core::Scalar> attention_scalars(const Backbone& backbone) {
  std::vector<core::Scalar> all;
  for (int64_t layer = 0; layer < backbone.num_layers(); ++layer) {
    for (core::Scalar& scalar : backbone.attention(layer).scalars())
      all.push_back({fmt::format("layers.{}.{}", layer, scalar.name), std::move(scalar.values)});
  }
  return all;
}

}  // namespace mnemo::models
