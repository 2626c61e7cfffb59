#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"

namespace mnemo::backbones {

/// The options that PVT and PVTv2 share; most have one value per stage.
struct PvtStageOptions {
  std::vector<int64_t> image_size = {224, 224};
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {64, 128, 320, 512};
  std::vector<int64_t> depths;
  std::vector<int64_t> num_heads = {1, 2, 5, 8};
  std::vector<double> mlp_ratios = {8, 8, 4, 4};
  std::vector<int64_t> sr_ratios = {8, 4, 2, 1};
  bool qkv_bias = true;
  double norm_eps = 1e-6;
  double drop_path = 0.0;
  double init_std = 0.02;
  /// Checks that image_size has two values and the other lists one per stage, that num_heads divides dims, and that the
  /// feed-forward has a hidden width of at least 1.
  void validate(const base::Where& where) const;
  int64_t num_layers() const;  ///< total of all stages
  int64_t ffn_dim(size_t stage) const;

 protected:
  explicit PvtStageOptions(std::vector<int64_t> of_each_stage) : depths(std::move(of_each_stage)) {}
  /// The options from in_channels to sr_ratios.
  template <class V>
  void visit_stages(V&& v, std::string_view about_sr_ratios) {
    v("in_channels", in_channels, "number of image channels", base::range(1, 1 << 10));
    v("dims", dims, "width of each stage", base::range(1, 1 << 16));
    v("depths", depths, "number of layers in each stage", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads in each stage; must divide its width", base::range(1, 1 << 10));
    v("mlp_ratios", mlp_ratios, "hidden width of the feed-forward in each stage, as a multiple of the stage's width",
      base::range(0.001, 1024.0));
    v("sr_ratios", sr_ratios, about_sr_ratios, base::range(1, 64));
  }
  /// The options from qkv_bias on.
  template <class V>
  void visit_layers(V&& v, std::string_view about_norm_eps) {
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections");
    v("norm_eps", norm_eps, about_norm_eps, base::positive());
    v("drop_path", drop_path,
      "stochastic depth: probability of skipping a branch of the last layer in training, increasing linearly from 0 in "
      "the first",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
  }
};

}  // namespace mnemo::backbones
