#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/options.h"
#include "ops/image/windows.h"
#include "weights/foreign.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

/// The supported arguments of timm's SwinTransformer.
struct TimmSwinArguments {
  std::vector<int64_t> img_size = {224, 224}, window_size = {7, 7};
  int64_t patch_size = 4, in_chans = 3, num_classes = 1000, embed_dim = 96;
  std::string global_pool = "avg";
  std::vector<int64_t> depths = {2, 2, 6, 2}, num_heads = {3, 6, 12, 24};
  double mlp_ratio = 4.0, drop_path_rate = 0.1;
  bool qkv_bias = true, strict_img_size = true, dynamic_img_size = false;
  template <class V>
  void visit(V&& v) {
    v("img_size", img_size, "");
    v("patch_size", patch_size, "");
    v("in_chans", in_chans, "");
    v("num_classes", num_classes, "");
    v("global_pool", global_pool, "", base::one_of("avg"));
    v("embed_dim", embed_dim, "");
    v("depths", depths, "");
    v("num_heads", num_heads, "");
    v("window_size", window_size, "");
    v("mlp_ratio", mlp_ratio, "");
    v("qkv_bias", qkv_bias, "");
    v("drop_path_rate", drop_path_rate, "");
    v("strict_img_size", strict_img_size, "");
    v("dynamic_img_size", dynamic_img_size, "");
  }
};

struct TimmSwinSize {
  std::string_view name;
  int64_t dim, third_depth;
  std::array<int64_t, 4> heads;
};
constexpr std::array<TimmSwinSize, 4> kTimmSwinSizes = {{{"tiny", 96, 6, {3, 6, 12, 24}},
                                                         {"small", 96, 18, {3, 6, 12, 24}},
                                                         {"base", 128, 18, {4, 8, 16, 32}},
                                                         {"large", 192, 18, {6, 12, 24, 48}}}};
constexpr std::array<std::pair<int64_t, int64_t>, 2> kTimmSwinImages = {{{7, 224}, {12, 384}}};

std::string swin_name(const TimmSwinSize& size, int64_t window, int64_t image) {
  return fmt::format("swin_{}_patch4_window{}_{}", size.name, window, image);
}

std::optional<TimmSwinArguments> swin_factory(const std::string& name) {
  for (const TimmSwinSize& size : kTimmSwinSizes) {
    for (const auto& [window, image] : kTimmSwinImages) {
      if (name != swin_name(size, window, image)) continue;
      TimmSwinArguments arguments;
      arguments.img_size = {image, image};
      arguments.window_size = {window, window};
      arguments.embed_dim = size.dim;
      arguments.depths[2] = size.third_depth;
      arguments.num_heads.assign(size.heads.begin(), size.heads.end());
      return arguments;
    }
  }
  return std::nullopt;
}

base::Node options_of_timm_swin(const base::Node& config) {
  const TimmSwinArguments arguments = timm_arguments(config, *swin_factory(timm_architecture(config)));
  return timm_model("swin", base::write_options(arguments), 1e-5, "mean");
}

base::Node timm_swin_config(const models::ModelOptions& options) {
  const auto& swin = std::get<backbones::SwinOptions>(options.backbone.vision());
  base::require(swin.norm_eps == 1e-5, "timm_swin: its norms have an epsilon of 1e-5, found backbone.norm_eps = {}",
                swin.norm_eps);
  const std::vector<int64_t>& depths = swin.depths;
  std::string architecture = "swin_tiny_patch4_window7_224";
  for (const TimmSwinSize& size : kTimmSwinSizes) {
    for (const auto& [window, image] : kTimmSwinImages) {
      if (size.dim == swin.dim && depths == std::vector<int64_t>{2, 2, size.third_depth, 2} &&
          swin.window_size[0] == window && swin.image_size[0] == image) {
        architecture = swin_name(size, window, image);
      }
    }
  }
  return timm_config(architecture, swin.dim_of(depths.size() - 1),
                     timm_arguments_of(options, base::write_options(TimmSwinArguments())));
}

/// Microsoft's files differ: patch merging is at the end of the previous stage, the head is `head.*`, and there are two
/// tensors that follow from the sizes: attn_mask, which we compute, and relative_position_index, which must equal ours.
TensorFile tidy_swin(const TensorFile& file, const std::string& where) {
  const auto has = [&](std::string_view name) {
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [&](const auto& tensor) { return tensor.first == name; });
  };
  const bool microsoft = has("layers.0.downsample.reduction.weight") || has("head.weight");
  TensorFile tidy = file;
  tidy.tensors.clear();
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(".attn_mask")) continue;
    if (name.ends_with(".relative_position_index")) {
      const auto area = tensor.dim() == 2 ? tensor.size(0) : 0;
      const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(area))));
      const bool known = area > 0 && side * side == area && tensor.size(1) == area &&
                         at::equal(tensor.to(at::kLong), ops::window_position_index(side, side, side, side));
      base::require(known, "{}: '{}' is not the index of a square window's places that this program computes", where,
                    name);
      continue;
    }
    std::string theirs = name;
    if (microsoft && theirs.starts_with("head.") && !theirs.starts_with("head.fc.")) theirs.insert(5, "fc.");
    const std::string prefix = "layers.", merging = ".downsample.";
    if (const size_t at = theirs.find(merging); microsoft && theirs.starts_with(prefix) && at != std::string::npos) {
      const std::string stage = theirs.substr(prefix.size(), at - prefix.size());
      base::require(stage.size() == 1 && stage[0] >= '0' && stage[0] < '9', "{}: unexpected tensor '{}'", where, name);
      theirs[prefix.size()] = static_cast<char>(stage[0] + 1);
    }
    tidy.tensors.emplace_back(std::move(theirs), tensor);
  }
  return tidy;
}

}  // namespace

ForeignFormat timm_swin_format() {
  return {.name = "timm_swin",
          .about = "timm's SwinTransformer: swin_ tiny, small, base, large; Microsoft's tensors are read too",
          .backbone = "swin",
          .tensors = {{"backbone.patch_embedding.*", "patch_embed.proj.*"},
                      {"backbone.patch_norm.*", "patch_embed.norm.*"},
                      {"backbone.stages.#.merging.*", "layers.#.downsample.*"},
                      {"backbone.stages.#.layers.#.norm1.*", "layers.#.blocks.#.norm1.*"},
                      {"backbone.stages.#.layers.#.norm2.*", "layers.#.blocks.#.norm2.*"},
                      {"backbone.stages.#.layers.#.attn.q.*", "layers.#.blocks.#.attn.qkv.*", 0, 3},
                      {"backbone.stages.#.layers.#.attn.k.*", "layers.#.blocks.#.attn.qkv.*", 1, 3},
                      {"backbone.stages.#.layers.#.attn.v.*", "layers.#.blocks.#.attn.qkv.*", 2, 3},
                      {"backbone.stages.#.layers.#.attn.o.*", "layers.#.blocks.#.attn.proj.*"},
                      {"backbone.stages.#.layers.#.attn.relative_position_bias_table",
                       "layers.#.blocks.#.attn.relative_position_bias_table"},
                      {"backbone.stages.#.layers.#.ffn.0.*", "layers.#.blocks.#.mlp.fc1.*"},
                      {"backbone.stages.#.layers.#.ffn.1.*", "layers.#.blocks.#.mlp.fc2.*"},
                      {"backbone.final_norm.*", "norm.*"},
                      {"head.classifier.*", "head.fc.*"}},
          .hidden = {{"embed", "embed"},
                     {"embed", "patch_embed"},
                     {"stages.#.embed", "layers.#.downsample"},
                     {"stages.#.layers.#", "layers.#.blocks.#"},
                     {"final_norm", "norm"}},
          .tidy = tidy_swin,
          .claims = [](const base::Node& config) { return swin_factory(timm_architecture(config)).has_value(); },
          .options = options_of_timm_swin,
          .config = timm_swin_config};
}

}  // namespace mnemo::weights
