#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/inspection.h"

namespace mnemo::models {

/// What the attentions of a backbone (of language or of images) have to follow through a training,
/// "layers.0.sigma_lambda" and the like.
template <class Backbone>
std::vector<core::Gauge> attention_gauges(const Backbone& backbone) {
  std::vector<core::Gauge> all;
  for (int64_t layer = 0; layer < backbone.num_layers(); ++layer) {
    const auto* inspectable = dynamic_cast<const core::Inspectable*>(&backbone.attention(layer));
    if (inspectable == nullptr) continue;
    for (core::Gauge& gauge : inspectable->gauges())
      all.push_back({fmt::format("layers.{}.{}", layer, gauge.name), std::move(gauge.values)});
  }
  return all;
}

}  // namespace mnemo::models
