#pragma once

#include <vector>

#include "backbones/pvt_stages.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

class Pvt;

struct PvtOptions : PvtStageOptions {
  static constexpr const char* kType = "pvt";
  static constexpr bool kTakesTasks = false;  ///< nor adapters
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
  at::Tensor positions(size_t stage, const core::Grid& grid) const;

  PvtOptions options_;
  std::vector<Stage> stages_;
  at::Tensor class_token_;  // [D]
  layers::LayerNorm final_norm_;
};

}  // namespace mnemo::backbones
