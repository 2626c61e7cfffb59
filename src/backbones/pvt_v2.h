#pragma once

#include <vector>

#include "backbones/pvt_stages.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

class PvtV2;

struct PvtV2Options : PvtStageOptions {
  static constexpr const char* kType = "pvt_v2";
  static constexpr bool kTakesTasks = false;  ///< nor adapters
  using Backbone = PvtV2;

  bool linear = false;
  PvtV2Options() : PvtStageOptions({3, 4, 6, 3}) {}
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "image height and width used for counting FLOPs; other sizes work too",
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

/// Pyramid Vision Transformer v2 (Wang et al. 2022, section 3). Each stage: overlapping patches (7 with stride 4, then
/// 3 with stride 2) and a norm, layers with spatially reduced keys and values and a depthwise convolution in the
/// feed-forward, and a final norm. No positions and no class token: images may have any size whose grids are not
/// smaller than the reduction.
class PvtV2 final : public Pyramid {
 public:
  /// Throws InputError for a layer_stack: PVTv2 is only available as a whole model.
  PvtV2(const PvtV2Options& options, const VisionBuild& build);
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  int64_t dim() const override { return options_.dims.back(); }
  int64_t num_class_tokens() const override { return 0; }

 private:
  struct Stage {
    layers::PatchEmbedding patches;
    layers::LayerNorm patch_norm, norm;
  };
  PvtV2Options options_;
  std::vector<Stage> stages_;
};

}  // namespace mnemo::backbones
