#pragma once

#include <cstdint>
#include <vector>

#include "backbones/pvt_stage_options.h"
#include "core/grid.h"

namespace mnemo::backbones {

class Pvt;

struct PvtOptions : PvtStageOptions {
  static constexpr const char* kType = "pvt";
  static constexpr bool kTakesTasks = false;   ///< nor adapters
  static constexpr bool kHasAttention = true;  ///< that memories wrap
  using Backbone = Pvt;

  int64_t patch_size = 4;
  PvtOptions() : PvtStageOptions({2, 2, 2, 2}) {}
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size,
      "image height and width of the position tables; the tables are resampled for other sizes",
      base::range(1, 1 << 14));
    v("patch_size", patch_size, "patch height and width in the first stage; later stages halve the grid",
      base::range(1, 1 << 10));
    visit_stages(
        v, "spatial reduction of keys and values in each stage; must be 1 in the last, because of the class token");
    visit_layers(v, "epsilon of the layer norms and the final norm; norms of patches and reductions use 1e-5");
  }
  void validate(const base::Where& where) const;
  /// The grid of each stage for an image; height or width is 0 if the image is too small.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
};

}  // namespace mnemo::backbones
