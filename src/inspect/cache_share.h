#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "core/scalar.h"

namespace mnemo::inspect {

/// sigma(lambda) of the heads of one layer: the fraction of each head's output that comes from the cache (GRC).
struct CacheShare {
  std::string layer = {};
  std::vector<double> heads = {};
  template <class V>
  void visit(V&& v) {
    v("layer", layer, "name of the attention");
    v("heads", heads, "sigma(lambda) of each head");
  }
};

/// The share of every head, layer by layer, taken from a model's scalars; empty for a model without GRC.
std::vector<CacheShare> cache_shares(const std::vector<core::Scalar>& scalars);

/// As a small bar chart, one row per layer. Empty if there are no shares.
std::string svg_of(const std::vector<CacheShare>& shares);

}  // namespace mnemo::inspect
