#pragma once

#include <vector>

#include "backbones/pyramid.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

class Pvt;

struct PvtOptions {
  static constexpr const char* kType = "pvt";
  using Backbone = Pvt;

  std::vector<int64_t> image_size = {224, 224};
  int64_t patch_size = 4;
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {64, 128, 320, 512};
  std::vector<int64_t> depths = {2, 2, 2, 2};
  std::vector<int64_t> num_heads = {1, 2, 5, 8};
  std::vector<double> mlp_ratios = {8, 8, 4, 4};
  std::vector<int64_t> sr_ratios = {8, 4, 2, 1};
  bool qkv_bias = true;
  double norm_eps = 1e-6;
  double drop_path = 0.0;
  double init_std = 0.02;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "height and width of the images that the tables of positions are for; others get them resampled", base::range(1, 1 << 14));
    v("patch_size", patch_size, "height and width of a patch of the first stage; later stages halve the grid", base::range(1, 1 << 10));
    v("in_channels", in_channels, "of an image", base::range(1, 1 << 10));
    v("dims", dims, "width of a row in each stage", base::range(1, 1 << 16));
    v("depths", depths, "layers of each stage", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads of each stage, divisors of its width", base::range(1, 1 << 10));
    v("mlp_ratios", mlp_ratios, "hidden width of the feed-forward in widths of a row, for each stage", base::range(0.001, 1024.0));
    v("sr_ratios", sr_ratios, "spatial reduction of keys and values in each stage; 1 in the last, where the class token is", base::range(1, 64));
    v("qkv_bias", qkv_bias, "the maps q, k and v have a bias");
    v("norm_eps", norm_eps, "of the layers' norms and the last one; those of patches and reductions have 1e-5", base::positive());
    v("drop_path", drop_path, "chance that an image passes a branch of the last layer by, in training; earlier ones by equal steps from 0",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "weights start as N(0, init_std)", base::positive());
  }
  void validate(const base::Where& where) const;
  /// The grid of each stage for an image; height or width 0 where the image is too small.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
};

/// Pyramid Vision Transformer (Wang et al. 2021, section 3): in each stage patches of the grid before it, a norm, positions, layers with
/// spatially reduced keys and values; a class token before the last stage, which is no part of any convolution.
/// Images of any size: what fills no whole patch is dropped, tables of positions are resampled (bilinear), the class row stays.
/// In a layer_stack there is one stage without class token.
class Pvt final : public Pyramid {
 public:
  Pvt(const PvtOptions& options, const VisionBuild& build);
  VisionResult forward(const VisionInput& input, const core::State& state) const override;
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
