#include <algorithm>
#include <array>
#include <optional>

#include "base/options.h"
#include "weights/foreign.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

/// The supported arguments of the authors' PyramidVisionTransformer. Their checkpoints have no config.json: like
/// timm's, ours names the factory and lists what differs from it.
struct PvtArguments {
  std::vector<int64_t> img_size = {224, 224};
  int64_t patch_size = 4, in_chans = 3, num_classes = 1000;
  std::vector<int64_t> embed_dims = {64, 128, 320, 512}, num_heads = {1, 2, 5, 8}, depths = {3, 4, 6, 3},
                       sr_ratios = {8, 4, 2, 1};
  std::vector<double> mlp_ratios = {8, 8, 4, 4};
  bool qkv_bias = true;
  double drop_path_rate = 0.0;
  template <class V>
  void visit(V&& v) {
    v("img_size", img_size, "");
    v("patch_size", patch_size, "");
    v("in_chans", in_chans, "");
    v("num_classes", num_classes, "");
    v("embed_dims", embed_dims, "");
    v("num_heads", num_heads, "");
    v("mlp_ratios", mlp_ratios, "");
    v("depths", depths, "");
    v("sr_ratios", sr_ratios, "");
    v("qkv_bias", qkv_bias, "");
    v("drop_path_rate", drop_path_rate, "");
  }
};

struct PvtSize {
  std::string_view name;
  std::array<int64_t, 4> depths;
};
constexpr std::array<PvtSize, 4> kPvtSizes = {{{"pvt_tiny", {2, 2, 2, 2}},
                                               {"pvt_small", {3, 4, 6, 3}},
                                               {"pvt_medium", {3, 4, 18, 3}},
                                               {"pvt_large", {3, 8, 27, 3}}}};

std::optional<PvtArguments> pvt_factory(const std::string& name) {
  for (const PvtSize& size : kPvtSizes) {
    if (name != size.name) continue;
    PvtArguments arguments;
    arguments.depths.assign(size.depths.begin(), size.depths.end());
    return arguments;
  }
  return std::nullopt;
}

base::Node options_of_pvt(const base::Node& config) {
  const PvtArguments arguments = timm_arguments(config, *pvt_factory(timm_architecture(config)));
  return timm_model("pvt", base::write_options(arguments), 1e-6, "cls");
}

base::Node pvt_config(const models::ModelOptions& options) {
  const auto& pvt = std::get<backbones::PvtOptions>(options.backbone.vision());
  base::require(pvt.norm_eps == 1e-6, "pvt: its norms have an epsilon of 1e-6, found backbone.norm_eps = {}",
                pvt.norm_eps);
  base::require(pvt.depths.size() == 4, "pvt: expected four stages, found {}", pvt.depths.size());
  base::require(options.head.table().at("pool").as_string() == "cls",
                "pvt: its head reads the class token; expected head.pool = \"cls\"");
  std::string architecture = "pvt_tiny";
  for (const PvtSize& size : kPvtSizes) {
    if (std::equal(size.depths.begin(), size.depths.end(), pvt.depths.begin(), pvt.depths.end()))
      architecture = size.name;
  }
  return timm_config(architecture, pvt.dims.back(), timm_arguments_of(options, base::write_options(PvtArguments())));
}

}  // namespace

ForeignFormat pvt_format() {
  return {.name = "pvt",
          .about = "the authors' PyramidVisionTransformer: pvt_tiny, small, medium, large",
          .backbone = "pvt",
          .tensors = {{"backbone.stages.#.patch_embedding.*", "patch_embed@.proj.*"},
                      {"backbone.stages.#.patch_norm.*", "patch_embed@.norm.*"},
                      {"backbone.stages.#.positions.weight", "pos_embed@", 0, 1, 1},
                      {"backbone.class_token", "cls_token", 0, 1, 2},
                      {"backbone.stages.#.layers.#.norm1.*", "block@.#.norm1.*"},
                      {"backbone.stages.#.layers.#.norm2.*", "block@.#.norm2.*"},
                      {"backbone.stages.#.layers.#.attn.q.*", "block@.#.attn.q.*"},
                      {"backbone.stages.#.layers.#.attn.k.*", "block@.#.attn.kv.*", 0, 2},
                      {"backbone.stages.#.layers.#.attn.v.*", "block@.#.attn.kv.*", 1, 2},
                      {"backbone.stages.#.layers.#.attn.o.*", "block@.#.attn.proj.*"},
                      {"backbone.stages.#.layers.#.attn.sr.*", "block@.#.attn.sr.*"},
                      {"backbone.stages.#.layers.#.attn.sr_norm.*", "block@.#.attn.norm.*"},
                      {"backbone.stages.#.layers.#.ffn.0.*", "block@.#.mlp.fc1.*"},
                      {"backbone.stages.#.layers.#.ffn.1.*", "block@.#.mlp.fc2.*"},
                      {"backbone.final_norm.*", "norm.*"},
                      {"head.classifier.*", "head.*"}},
          .hidden = {{"embed", "embed1"},
                     {"stages.#.embed", "embed@"},
                     {"stages.#.layers.#", "block@.#"},
                     {"final_norm", "norm"}},
          .claims = [](const base::Node& config) { return pvt_factory(timm_architecture(config)).has_value(); },
          .options = options_of_pvt,
          .config = pvt_config};
}

}  // namespace mnemo::weights
