#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options.h"
#include "core/grid.h"
#include "ops/image/grid_resampling.h"

namespace mnemo::backbones {

class Vit;

struct VitOptions {
  static constexpr const char* kType = "vit";
  static constexpr bool kTakesTasks = true;    ///< and adapters
  static constexpr bool kHasAttention = true;  ///< that memories wrap
  using Backbone = Vit;

  std::vector<int64_t> image_size = {224, 224};
  int64_t patch_size = 16;
  int64_t in_channels = 3;
  int64_t cls_tokens = 1;
  int64_t dim = 384;
  int64_t num_layers = 12;
  int64_t num_heads = 6;
  double mlp_ratio = 4.0;
  bool qkv_bias = true;
  double norm_eps = 1e-6;
  ops::GridResampling position_resampling = ops::GridResampling::bicubic_antialias;
  std::optional<double> layer_scale;
  double drop_path = 0.0;
  double dropout = 0.0;
  double init_std = 0.02;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "image height and width of the position table; the table is resampled for other sizes",
      base::range(1, 1 << 14));
    v("patch_size", patch_size, "patch height and width; must divide the image height and width",
      base::range(1, 1 << 10));
    v("in_channels", in_channels, "number of image channels", base::range(1, 1 << 10));
    v("cls_tokens", cls_tokens, "number of class tokens in front of the patches, read by a head with pool = \"cls\"",
      base::range(0, 1));
    v("dim", dim, "model width", base::range(1, 1 << 16));
    v("num_layers", num_layers, "layers", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads; must divide dim", base::range(1, 1 << 10));
    v("mlp_ratio", mlp_ratio, "hidden width of the feed-forward, as a multiple of the model width",
      base::range(0.001, 1024.0));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections");
    v("norm_eps", norm_eps, "epsilon of all layer norms", base::positive());
    v("position_resampling", position_resampling,
      "resampling of positions for other image sizes: bicubic_antialias (timm), bicubic (Hugging Face) or bilinear",
      base::one_of("bicubic_antialias", "bicubic", "bilinear"));
    v("layer_scale", layer_scale,
      "LayerScale: initial value of a learned factor per channel of every branch (Touvron et al. 2021); unset: none",
      base::positive());
    v("drop_path", drop_path,
      "stochastic depth: probability of skipping a branch of the last layer in training, increasing linearly from 0 in "
      "the first",
      base::half_open_range(0.0, 1.0));
    v("dropout", dropout, "dropout after the embedding and after every branch", base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
  }
  void validate(const base::Where& where) const;
  core::Grid grid() const { return {image_size[0] / patch_size, image_size[1] / patch_size}; }
  int64_t ffn_dim() const;
};

}  // namespace mnemo::backbones
