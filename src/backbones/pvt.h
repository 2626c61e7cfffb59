#pragma once

#include <vector>

#include "backbones/pvt_options.h"
#include "backbones/pyramid.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

/// Pyramid Vision Transformer (Wang et al. 2021, section 3). Each stage: patches of the previous grid, a norm,
/// positions, and layers with spatially reduced keys and values. A class token is added before the last stage; no
/// convolution includes it. Images may have any size: incomplete patches are dropped, and position tables are resampled
/// (bilinear) except for the class row. A layer_stack has one stage and no class token.
class Pvt final : public Pyramid {
 public:
  Pvt(const PvtOptions& options, const VisionBuild& build);
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  int64_t dim() const override { return options_.dims.back(); }
  int64_t num_class_tokens() const override { return class_token_.defined() ? 1 : 0; }

 private:
  struct Stage {
    layers::PatchEmbedding patches;
    layers::LayerNorm norm;
    at::Tensor positions;  ///< [N,D]; in the last stage [1+N,D], the class token's first
  };
  at::Tensor positions(size_t stage, const core::RealCells& cells) const;

  PvtOptions options_;
  std::vector<Stage> stages_;
  at::Tensor class_token_;  // [D]
  layers::LayerNorm final_norm_;
};

}  // namespace mnemo::backbones
