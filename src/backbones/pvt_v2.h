#pragma once

#include <vector>

#include "backbones/pvt_v2_options.h"
#include "backbones/pyramid.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

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
