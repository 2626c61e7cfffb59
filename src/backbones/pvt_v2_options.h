#pragma once

#include <cstdint>
#include <vector>

#include "backbones/pvt_stage_options.h"
#include "core/grid.h"

namespace mnemo::backbones {

class PvtV2;

struct PvtV2Options : PvtStageOptions {
  static constexpr const char* kType = "pvt_v2";
  static constexpr bool kTakesTasks = false;   ///< nor adapters
  static constexpr bool kHasAttention = true;  ///< that memories wrap
  using Backbone = PvtV2;

  bool linear = false;
  PvtV2Options() : PvtStageOptions({3, 4, 6, 3}) {}
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size,
      "image height and width, of the data too where data.image_size is empty; other sizes work",
      base::range(1, 1 << 14));
    visit_stages(v, "spatial reduction of keys and values in each stage; ignored if linear");
    v("linear", linear, "PVTv2-Li: pool keys and values to 7 x 7 in every stage, and use a relu in the feed-forward");
    visit_layers(v, "epsilon of the layer and stage norms; norms of patches and reductions use 1e-5");
  }
  /// sr_ratios, or 1 everywhere if linear.
  std::vector<int64_t> reductions() const { return linear ? std::vector<int64_t>(depths.size(), 1) : sr_ratios; }
  /// The grid of each stage for an image.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
};

}  // namespace mnemo::backbones
