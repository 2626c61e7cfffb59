#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "base/options.h"
#include "weights/foreign.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

struct TimmVitSize {
  std::string_view name;
  int64_t dim, depth, heads;
};
constexpr std::array<TimmVitSize, 4> kTimmVitSizes = {
    {{"tiny", 192, 12, 3}, {"small", 384, 12, 6}, {"base", 768, 12, 12}, {"large", 1024, 24, 16}}};

/// The factories that timm has of these sizes, without "vit_".
constexpr std::array<std::string_view, 17> kTimmVitFactories = {
    "tiny_patch16_224",  "tiny_patch16_384",  "small_patch8_224",  "small_patch16_224", "small_patch16_384",
    "small_patch32_224", "small_patch32_384", "base_patch8_224",   "base_patch16_224",  "base_patch16_384",
    "base_patch32_224",  "base_patch32_384",  "large_patch14_224", "large_patch16_224", "large_patch16_384",
    "large_patch32_224", "large_patch32_384"};

/// The supported arguments of timm's VisionTransformer.
struct TimmVitArguments {
  std::vector<int64_t> img_size = {224, 224};
  int64_t patch_size = 16, in_chans = 3, num_classes = 1000, embed_dim = 768, depth = 12, num_heads = 12;
  double mlp_ratio = 4.0;
  bool qkv_bias = true, class_token = true;
  std::optional<bool> fc_norm;
  std::string global_pool = "token";
  std::optional<double> init_values;
  double proj_drop_rate = 0.0, drop_path_rate = 0.0;
  bool dynamic_img_size = false;
  template <class V>
  void visit(V&& v) {
    v("img_size", img_size, "");
    v("patch_size", patch_size, "");
    v("in_chans", in_chans, "");
    v("num_classes", num_classes, "");
    v("embed_dim", embed_dim, "");
    v("depth", depth, "");
    v("num_heads", num_heads, "");
    v("mlp_ratio", mlp_ratio, "");
    v("qkv_bias", qkv_bias, "");
    v("class_token", class_token, "");
    v("fc_norm", fc_norm, "");
    v("global_pool", global_pool, "", base::one_of("token", "avg"));
    v("init_values", init_values, "");
    v("proj_drop_rate", proj_drop_rate, "");
    v("drop_path_rate", drop_path_rate, "");
    v("dynamic_img_size", dynamic_img_size, "");
  }
  void validate(const base::Where& where) const {
    where.require(global_pool == "token" || (fc_norm && !*fc_norm), "global_pool",
                  "\"avg\" puts the norm behind the mean (fc_norm), which this program has in front of it; expected "
                  "\"token\", or fc_norm = false");
    where.require(global_pool == "avg" || !fc_norm.value_or(false), "fc_norm",
                  "expected false or null with global_pool = \"token\"");
  }
};

/// The arguments that a factory name implies: vit_SIZE_patchP_IMAGE, or deit_ instead of vit_.
std::optional<TimmVitArguments> factory_arguments(const std::string& name) {
  const size_t first = name.find('_');
  if (first == std::string::npos || (name.substr(0, first) != "vit" && name.substr(0, first) != "deit"))
    return std::nullopt;
  for (const TimmVitSize& size : kTimmVitSizes) {
    int patch = 0, image = 0, read = 0;
    const std::string pattern = name.substr(0, first) + "_" + std::string(size.name) + "_patch%2d_%3d%n";
    if (std::sscanf(name.c_str(), pattern.c_str(), &patch, &image, &read) != 2 ||
        static_cast<size_t>(read) != name.size())
      continue;
    TimmVitArguments arguments;
    arguments.img_size = {image, image};
    arguments.patch_size = patch;
    arguments.embed_dim = size.dim;
    arguments.depth = size.depth;
    arguments.num_heads = size.heads;
    return arguments;
  }
  return std::nullopt;
}

base::Node options_of_timm_vit(const base::Node& config) {
  const TimmVitArguments arguments = timm_arguments(config, *factory_arguments(timm_architecture(config)));
  base::Node model = timm_model("vit", base::write_options(arguments), 1e-6,
                                arguments.global_pool == "avg" ? "mean" : "cls");
  model.find("backbone")->set("cls_tokens", arguments.class_token ? 1 : 0);
  model.find("backbone")->set("position_resampling", "bicubic_antialias");
  return model;
}

base::Node timm_vit_config(const models::ModelOptions& options) {
  const auto& vit = std::get<backbones::VitOptions>(options.backbone.vision());
  base::require(options.memory.empty() && !options.adapters,
                "timm_vit: has no memory and no adapters; detach the tasks first");
  base::require(vit.norm_eps == 1e-6, "timm_vit: its norms have an epsilon of 1e-6, found backbone.norm_eps = {}",
                vit.norm_eps);
  std::string architecture = "vit_tiny_patch16_224";  // any would do: model_args names every argument
  for (const TimmVitSize& size : kTimmVitSizes) {
    if (size.dim != vit.dim || size.depth != vit.num_layers || size.heads != vit.num_heads) continue;
    const std::string exact = fmt::format("{}_patch{}_{}", size.name, vit.patch_size, vit.image_size[0]);
    const bool exists = vit.image_size[0] == vit.image_size[1] &&
                        std::find(kTimmVitFactories.begin(), kTimmVitFactories.end(), exact) != kTimmVitFactories.end();
    architecture = exists ? "vit_" + exact : fmt::format("vit_{}_patch16_224", size.name);
  }
  const bool mean = options.head.table().at("pool").as_string() == "mean";
  base::Node arguments = base::Node::table({{"img_size", base::Node::array({vit.image_size[0], vit.image_size[1]})},
                                            {"patch_size", vit.patch_size},
                                            {"in_chans", vit.in_channels},
                                            {"num_classes", options.head.table().at("num_classes").as_int()},
                                            {"embed_dim", vit.dim},
                                            {"depth", vit.num_layers},
                                            {"num_heads", vit.num_heads},
                                            {"mlp_ratio", vit.mlp_ratio},
                                            {"qkv_bias", vit.qkv_bias},
                                            {"class_token", vit.cls_tokens > 0},
                                            {"global_pool", mean ? "avg" : "token"}});
  if (mean) arguments.set("fc_norm", false);
  if (vit.layer_scale) arguments.set("init_values", *vit.layer_scale);
  if (vit.dropout > 0.0) arguments.set("proj_drop_rate", vit.dropout);
  if (vit.drop_path > 0.0) arguments.set("drop_path_rate", vit.drop_path);
  return timm_config(architecture, vit.dim, arguments);
}

}  // namespace

ForeignFormat timm_vit_format() {
  return {.name = "timm_vit",
          .about = "timm's VisionTransformer: vit_ or deit_ tiny, small, base, large",
          .backbone = "vit",
          .tensors = {{"backbone.patch_embedding.*", "patch_embed.proj.*"},
                      {"backbone.class_token", "cls_token", 0, 1, 2},
                      {"backbone.positions.weight", "pos_embed", 0, 1, 1},
                      {"backbone.layers.#.norm1.*", "blocks.#.norm1.*"},
                      {"backbone.layers.#.norm2.*", "blocks.#.norm2.*"},
                      {"backbone.layers.#.attn.q.*", "blocks.#.attn.qkv.*", 0, 3},
                      {"backbone.layers.#.attn.k.*", "blocks.#.attn.qkv.*", 1, 3},
                      {"backbone.layers.#.attn.v.*", "blocks.#.attn.qkv.*", 2, 3},
                      {"backbone.layers.#.attn.o.*", "blocks.#.attn.proj.*"},
                      {"backbone.layers.#.ffn.0.*", "blocks.#.mlp.fc1.*"},
                      {"backbone.layers.#.ffn.1.*", "blocks.#.mlp.fc2.*"},
                      {"backbone.layers.#.scale1", "blocks.#.ls1.gamma"},
                      {"backbone.layers.#.scale2", "blocks.#.ls2.gamma"},
                      {"backbone.layers.#.adapter1.*", "blocks.#.adapter1.*"},
                      {"backbone.layers.#.adapter2.*", "blocks.#.adapter2.*"},
                      {"task.*", "task.*"},
                      {"backbone.final_norm.*", "norm.*"},
                      {"head.classifier.*", "head.*"}},
          .hidden = {{"embed", "embed"}, {"layers.#", "blocks.#"}, {"final_norm", "norm"}},
          .claims = [](const base::Node& config) { return factory_arguments(timm_architecture(config)).has_value(); },
          .options = options_of_timm_vit,
          .config = timm_vit_config};
}

}  // namespace mnemo::weights
