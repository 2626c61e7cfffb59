#pragma once

#include <cstdint>
#include <vector>

#include "base/options.h"
#include "core/grid.h"

namespace mnemo::backbones {

class Swin;

struct SwinOptions {
  static constexpr const char* kType = "swin";
  static constexpr bool kTakesTasks = false;   ///< nor adapters
  static constexpr bool kHasAttention = true;  ///< that memories wrap
  using Backbone = Swin;

  std::vector<int64_t> image_size = {224, 224};
  int64_t patch_size = 4;
  int64_t in_channels = 3;
  int64_t dim = 96;
  std::vector<int64_t> depths = {2, 2, 6, 2};
  std::vector<int64_t> num_heads = {3, 6, 12, 24};
  std::vector<int64_t> window_size = {7, 7};
  double mlp_ratio = 4.0;
  bool qkv_bias = true;
  double norm_eps = 1e-5;
  double drop_path = 0.0;
  double init_std = 0.02;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "image height and width; a window is never larger than the grid of such an image",
      base::range(1, 1 << 14));
    v("patch_size", patch_size, "patch height and width; must divide the image height and width",
      base::range(1, 1 << 10));
    v("in_channels", in_channels, "number of image channels", base::range(1, 1 << 10));
    v("dim", dim, "width of the first stage; each later stage doubles it", base::range(1, 1 << 16));
    v("depths", depths, "number of layers in each stage; odd layers shift their windows by half",
      base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads in each stage; must divide its width", base::range(1, 1 << 10));
    v("window_size", window_size, "window height and width, in grid cells", base::range(1, 256));
    v("mlp_ratio", mlp_ratio, "hidden width of the feed-forward, as a multiple of the model width",
      base::range(0.001, 1024.0));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections");
    v("norm_eps", norm_eps, "epsilon of all layer norms", base::positive());
    v("drop_path", drop_path,
      "stochastic depth: probability of skipping a branch of the last layer in training, increasing linearly from 0 in "
      "the first",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
  }
  void validate(const base::Where& where) const;
  int64_t dim_of(size_t stage) const { return dim << stage; }
  /// The grid of each stage for an image whose sides are multiples of patch_size: half of the one before, rounded up.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
  /// The window of a stage: window_size, or smaller if the grid is.
  core::Grid window(const core::Grid& grid) const;
};

}  // namespace mnemo::backbones
