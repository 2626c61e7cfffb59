#pragma once

#include <cmath>

#include "backbones/pyramid.h"

namespace mnemo::backbones {

/// What the options of PVT and of PVTv2 have to keep alike: two numbers of image_size, one of everything else for each stage, heads that divide
/// a row, a feed-forward with a hidden width. Throws InputError naming the key.
template <class Options>
void require_pvt_stages(const base::Where& where, const Options& options) {
  where.require(options.image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", options.image_size.size());
  where.require(!options.depths.empty(), "depths", "expected at least one stage");
  const size_t stages = options.depths.size();
  require_stages(where, "dims", options.dims.size(), stages);
  require_stages(where, "num_heads", options.num_heads.size(), stages);
  require_stages(where, "mlp_ratios", options.mlp_ratios.size(), stages);
  require_stages(where, "sr_ratios", options.sr_ratios.size(), stages);
  for (size_t s = 0; s < stages; ++s) {
    const int64_t dim = options.dims[s];
    where.require(dim % options.num_heads[s] == 0, "num_heads", "expected a divisor of dims[{}] = {}, found {}", s, dim, options.num_heads[s]);
    where.require(std::llround(options.mlp_ratios[s] * static_cast<double>(dim)) >= 1, "mlp_ratios", "leaves no hidden width: {} * {}",
                  options.mlp_ratios[s], dim);
  }
}

}  // namespace mnemo::backbones
