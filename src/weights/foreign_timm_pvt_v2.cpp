#include <algorithm>
#include <array>
#include <optional>

#include "base/options.h"
#include "weights/foreign.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

/// The supported arguments of timm's PyramidVisionTransformerV2.
struct TimmPvtV2Arguments {
  int64_t in_chans = 3, num_classes = 1000;
  std::string global_pool = "avg";
  std::vector<int64_t> depths = {3, 4, 6, 3}, embed_dims = {64, 128, 320, 512}, num_heads = {1, 2, 5, 8},
                       sr_ratios = {8, 4, 2, 1};
  std::vector<double> mlp_ratios = {8, 8, 4, 4};
  bool qkv_bias = true, linear = false;
  double drop_path_rate = 0.0;
  template <class V>
  void visit(V&& v) {
    v("in_chans", in_chans, "");
    v("num_classes", num_classes, "");
    v("global_pool", global_pool, "", base::one_of("avg"));
    v("depths", depths, "");
    v("embed_dims", embed_dims, "");
    v("num_heads", num_heads, "");
    v("sr_ratios", sr_ratios, "");
    v("mlp_ratios", mlp_ratios, "");
    v("qkv_bias", qkv_bias, "");
    v("linear", linear, "");
    v("drop_path_rate", drop_path_rate, "");
  }
};

struct TimmPvtV2Size {
  std::string_view name;
  std::array<int64_t, 4> dims, depths;
  double first_ratios;
  bool linear;
};
constexpr std::array<int64_t, 4> kNarrow = {32, 64, 160, 256}, kWide = {64, 128, 320, 512};
constexpr std::array<TimmPvtV2Size, 7> kTimmPvtV2Sizes = {{{"pvt_v2_b0", kNarrow, {2, 2, 2, 2}, 8, false},
                                                           {"pvt_v2_b1", kWide, {2, 2, 2, 2}, 8, false},
                                                           {"pvt_v2_b2", kWide, {3, 4, 6, 3}, 8, false},
                                                           {"pvt_v2_b3", kWide, {3, 4, 18, 3}, 8, false},
                                                           {"pvt_v2_b4", kWide, {3, 8, 27, 3}, 8, false},
                                                           {"pvt_v2_b5", kWide, {3, 6, 40, 3}, 4, false},
                                                           {"pvt_v2_b2_li", kWide, {3, 4, 6, 3}, 8, true}}};

std::optional<TimmPvtV2Arguments> pvt_v2_factory(const std::string& name) {
  for (const TimmPvtV2Size& size : kTimmPvtV2Sizes) {
    if (name != size.name) continue;
    TimmPvtV2Arguments arguments;
    arguments.embed_dims.assign(size.dims.begin(), size.dims.end());
    arguments.depths.assign(size.depths.begin(), size.depths.end());
    arguments.mlp_ratios = {size.first_ratios, size.first_ratios, 4, 4};
    arguments.linear = size.linear;
    return arguments;
  }
  return std::nullopt;
}

base::Node options_of_timm_pvt_v2(const base::Node& config) {
  const TimmPvtV2Arguments arguments = timm_arguments(config, *pvt_v2_factory(timm_architecture(config)));
  base::Node model = timm_model("pvt_v2", base::write_options(arguments), 1e-6, "mean");
  model.find("backbone")->set("image_size", timm_input_size(config));
  return model;
}

base::Node timm_pvt_v2_config(const models::ModelOptions& options) {
  const auto& pvt = std::get<backbones::PvtV2Options>(options.backbone.vision());
  base::require(pvt.norm_eps == 1e-6, "timm_pvt_v2: its norms have an epsilon of 1e-6, found backbone.norm_eps = {}",
                pvt.norm_eps);
  std::string architecture = "pvt_v2_b2";
  for (const TimmPvtV2Size& size : kTimmPvtV2Sizes) {
    if (std::equal(size.dims.begin(), size.dims.end(), pvt.dims.begin(), pvt.dims.end()) &&
        std::equal(size.depths.begin(), size.depths.end(), pvt.depths.begin(), pvt.depths.end()) &&
        size.linear == pvt.linear) {
      architecture = size.name;
    }
  }
  base::Node config = timm_config(architecture, pvt.dims.back(),
                                  timm_arguments_of(options, base::write_options(TimmPvtV2Arguments())));
  const base::Node input_size = base::Node::array({pvt.in_channels, pvt.image_size[0], pvt.image_size[1]});
  config.set("pretrained_cfg", base::Node::table({{"input_size", input_size}}));
  return config;
}

}  // namespace

ForeignFormat timm_pvt_v2_format() {
  return {.name = "timm_pvt_v2",
          .about = "timm's PyramidVisionTransformerV2: pvt_v2_b0 to b5 and pvt_v2_b2_li",
          .backbone = "pvt_v2",
          .tensors = {{"backbone.stages.0.patch_embedding.*", "patch_embed.proj.*"},
                      {"backbone.stages.0.patch_norm.*", "patch_embed.norm.*"},
                      {"backbone.stages.#.patch_embedding.*", "stages.#.downsample.proj.*"},
                      {"backbone.stages.#.patch_norm.*", "stages.#.downsample.norm.*"},
                      {"backbone.stages.#.layers.#.norm1.*", "stages.#.blocks.#.norm1.*"},
                      {"backbone.stages.#.layers.#.norm2.*", "stages.#.blocks.#.norm2.*"},
                      {"backbone.stages.#.layers.#.attn.q.*", "stages.#.blocks.#.attn.q.*"},
                      {"backbone.stages.#.layers.#.attn.k.*", "stages.#.blocks.#.attn.kv.*", 0, 2},
                      {"backbone.stages.#.layers.#.attn.v.*", "stages.#.blocks.#.attn.kv.*", 1, 2},
                      {"backbone.stages.#.layers.#.attn.o.*", "stages.#.blocks.#.attn.proj.*"},
                      {"backbone.stages.#.layers.#.attn.sr.*", "stages.#.blocks.#.attn.sr.*"},
                      {"backbone.stages.#.layers.#.attn.sr_norm.*", "stages.#.blocks.#.attn.norm.*"},
                      {"backbone.stages.#.layers.#.ffn.0.*", "stages.#.blocks.#.mlp.fc1.*"},
                      {"backbone.stages.#.layers.#.ffn.dwconv.*", "stages.#.blocks.#.mlp.dwconv.*"},
                      {"backbone.stages.#.layers.#.ffn.1.*", "stages.#.blocks.#.mlp.fc2.*"},
                      {"backbone.stages.#.norm.*", "stages.#.norm.*"},
                      {"head.classifier.*", "head.*"}},
          .hidden = {{"embed", "embed"},
                     {"embed", "patch_embed"},
                     {"stages.#.embed", "stages.#.downsample"},
                     {"stages.#.layers.#", "stages.#.blocks.#"},
                     {"stages.#.norm", "stages.#.norm"}},
          .claims = [](const base::Node& config) { return pvt_v2_factory(timm_architecture(config)).has_value(); },
          .options = options_of_timm_pvt_v2,
          .config = timm_pvt_v2_config};
}

}  // namespace mnemo::weights
