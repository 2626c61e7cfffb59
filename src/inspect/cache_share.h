#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "core/inspection.h"

namespace mnemo::inspect {

/// sigma(lambda) of the heads of one layer: how much of each head's output comes from the cache (GRC).
struct CacheShare {
  std::string layer = {};
  std::vector<double> heads = {};
  template <class V>
  void visit(V&& v) {
    v("layer", layer, "name of the attention");
    v("heads", heads, "sigma(lambda) of each head");
  }
};

/// Numbers of every head's share of the cache, layer by layer, out of a model's scalars; empty for a model without GRC.
std::vector<CacheShare> cache_shares(const std::vector<core::Scalar>& scalars);

/// As small bars, one row a layer. Empty where there is none.
std::string svg_of(const std::vector<CacheShare>& shares);

}  // namespace mnemo::inspect
