#pragma once

#include <vector>

#include "backbones/pyramid.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

class PvtV2;

struct PvtV2Options {
  static constexpr const char* kType = "pvt_v2";
  using Backbone = PvtV2;

  std::vector<int64_t> image_size = {224, 224};
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {64, 128, 320, 512};
  std::vector<int64_t> depths = {3, 4, 6, 3};
  std::vector<int64_t> num_heads = {1, 2, 5, 8};
  std::vector<double> mlp_ratios = {8, 8, 4, 4};
  std::vector<int64_t> sr_ratios = {8, 4, 2, 1};
  bool linear = false;
  bool qkv_bias = true;
  double norm_eps = 1e-6;
  double drop_path = 0.0;
  double init_std = 0.02;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "height and width of an image, for what is counted; any other may come", base::range(1, 1 << 14));
    v("in_channels", in_channels, "of an image", base::range(1, 1 << 10));
    v("dims", dims, "width of a row in each stage", base::range(1, 1 << 16));
    v("depths", depths, "layers of each stage", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads of each stage, divisors of its width", base::range(1, 1 << 10));
    v("mlp_ratios", mlp_ratios, "hidden width of the feed-forward in widths of a row, for each stage", base::range(0.001, 1024.0));
    v("sr_ratios", sr_ratios, "spatial reduction of keys and values in each stage; without meaning if linear", base::range(1, 64));
    v("linear", linear, "keys and values of 7 x 7 averages in every stage, a relu in the feed-forward (PVTv2-Li)");
    v("qkv_bias", qkv_bias, "the maps q, k and v have a bias");
    v("norm_eps", norm_eps, "of the layers' norms and the stages'; those of patches and reductions have 1e-5", base::positive());
    v("drop_path", drop_path, "chance that an image passes a branch of the last layer by, in training; earlier ones by equal steps from 0",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "weights start as N(0, init_std)", base::positive());
  }
  void validate(const base::Where& where) const;
  /// The grid of each stage for an image.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
};

/// Pyramid Vision Transformer v2 (Wang et al. 2022, section 3): overlapping patches (7 with stride 4, then 3 with stride 2) and a norm,
/// layers with spatially reduced keys and values and a depthwise convolution in the feed-forward, a norm at the end of each stage.
/// No positions, no class token: images of any size whose grids are not smaller than the reduction.
class PvtV2 final : public Pyramid {
 public:
  /// Throws InputError in a layer_stack: its parts are defined for whole models alone.
  PvtV2(const PvtV2Options& options, const VisionBuild& build);
  VisionResult forward(const VisionInput& input, const core::State& state) const override;
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
