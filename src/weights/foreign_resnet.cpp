#include <algorithm>
#include <array>
#include <optional>

#include "base/options.h"
#include "weights/foreign.h"
#include "weights/foreign_resnet.h"
#include "weights/foreign_timm.h"

namespace mnemo::weights {
namespace {

/// The supported arguments of timm's ResNet.
struct ResnetArguments {
  std::string block = "bottleneck";
  std::vector<int64_t> layers = {3, 4, 6, 3};
  int64_t in_chans = 3, num_classes = 1000;
  std::string global_pool = "avg";
  template <class V>
  void visit(V&& v) {
    v("block", block, "", base::one_of("basic", "bottleneck"));
    v("layers", layers, "");
    v("in_chans", in_chans, "");
    v("num_classes", num_classes, "");
    v("global_pool", global_pool, "", base::one_of("avg"));
  }
};

struct ResnetSize {
  std::string_view name, block;
  std::array<int64_t, 4> depths;
};
constexpr std::array<ResnetSize, 5> kResnetSizes = {{{"resnet18", "basic", {2, 2, 2, 2}},
                                                     {"resnet34", "basic", {3, 4, 6, 3}},
                                                     {"resnet50", "bottleneck", {3, 4, 6, 3}},
                                                     {"resnet101", "bottleneck", {3, 4, 23, 3}},
                                                     {"resnet152", "bottleneck", {3, 8, 36, 3}}}};

const ResnetSize* resnet_size(std::string_view name) {
  const auto found = std::find_if(kResnetSizes.begin(), kResnetSizes.end(),
                                  [&](const ResnetSize& size) { return size.name == name; });
  return found == kResnetSizes.end() ? nullptr : &*found;
}

std::string_view block_of(const backbones::ResnetOptions& options) {
  return options.block == backbones::ResnetOptions::Block::basic ? "basic" : "bottleneck";
}

base::Node options_of_resnet(const base::Node& config) {
  const ResnetSize& size = *resnet_size(timm_architecture(config));
  ResnetArguments factory;
  factory.block = size.block;
  factory.layers.assign(size.depths.begin(), size.depths.end());
  const ResnetArguments arguments = timm_arguments(config, factory);
  base::Node backbone = resnet_backbone(timm_architecture(config));
  backbone.set("image_size", timm_input_size(config));
  backbone.set("in_channels", arguments.in_chans);
  backbone.set("block", arguments.block);
  backbone.set("depths", base::write_options(arguments).at("layers"));
  return base::Node::table(
      {{"backbone", backbone},
       {"head",
        base::Node::table({{"type", "classification"}, {"num_classes", arguments.num_classes}, {"pool", "mean"}})}});
}

base::Node resnet_config(const models::ModelOptions& options) {
  const auto& resnet = std::get<backbones::ResnetOptions>(options.backbone.vision());
  base::require(resnet.norm_eps == 1e-5 && resnet.dim == 64,
                "resnet: has an epsilon of 1e-5 and a first stage of width 64, found backbone.norm_eps = {} and "
                "backbone.dim = {}",
                resnet.norm_eps, resnet.dim);
  ResnetArguments arguments;
  arguments.block = block_of(resnet);
  arguments.layers = resnet.depths;
  arguments.in_chans = resnet.in_channels;
  arguments.num_classes = options.head.table().at("num_classes").as_int();
  base::Node config = timm_config(resnet_name(resnet), resnet.dim_of(resnet.depths.size() - 1),
                                  base::write_options(arguments));
  const base::Node input_size = base::Node::array({resnet.in_channels, resnet.image_size[0], resnet.image_size[1]});
  config.set("pretrained_cfg", base::Node::table({{"input_size", input_size}}));
  return config;
}

}  // namespace

base::Node resnet_backbone(std::string_view architecture) {
  const ResnetSize* size = resnet_size(architecture);
  base::require(size != nullptr, "unknown residual network {}", base::in_quotes(std::string(architecture)));
  base::Node depths = base::Node::array();
  for (const int64_t depth : size->depths) depths.push_back(depth);
  return base::Node::table({{"type", "resnet"}, {"block", size->block}, {"depths", depths}});
}

std::string_view resnet_name(const backbones::ResnetOptions& options) {
  const auto found = std::ranges::find_if(kResnetSizes, [&](const ResnetSize& size) {
    return size.block == block_of(options) && std::ranges::equal(size.depths, options.depths);
  });
  return found == kResnetSizes.end() ? "resnet50" : found->name;
}

std::vector<NameRule> resnet_rules() {
  return {{"backbone.stem.conv.weight", "conv1.weight"},
          {"backbone.stem.norm.*", "bn1.*"},
          {"layers.backbone.stem.norm.*", "bn1.*"},
          {"backbone.stages.#.blocks.#.conv1.weight", "layer@.#.conv1.weight"},
          {"backbone.stages.#.blocks.#.conv2.weight", "layer@.#.conv2.weight"},
          {"backbone.stages.#.blocks.#.conv3.weight", "layer@.#.conv3.weight"},
          {"backbone.stages.#.blocks.#.norm1.*", "layer@.#.bn1.*"},
          {"backbone.stages.#.blocks.#.norm2.*", "layer@.#.bn2.*"},
          {"backbone.stages.#.blocks.#.norm3.*", "layer@.#.bn3.*"},
          {"layers.backbone.stages.#.blocks.#.norm1.*", "layer@.#.bn1.*"},
          {"layers.backbone.stages.#.blocks.#.norm2.*", "layer@.#.bn2.*"},
          {"layers.backbone.stages.#.blocks.#.norm3.*", "layer@.#.bn3.*"},
          {"backbone.stages.#.blocks.#.shortcut.conv.weight", "layer@.#.downsample.0.weight"},
          {"backbone.stages.#.blocks.#.shortcut.norm.*", "layer@.#.downsample.1.*"},
          {"layers.backbone.stages.#.blocks.#.shortcut.norm.*", "layer@.#.downsample.1.*"}};
}

TensorFile without_batch_counts(const TensorFile& file) {
  TensorFile tidy = file;
  std::erase_if(tidy.tensors, [](const auto& tensor) { return tensor.first.ends_with(".num_batches_tracked"); });
  return tidy;
}

ForeignFormat resnet_format() {
  std::vector<NameRule> tensors = resnet_rules();
  tensors.push_back({"head.classifier.*", "fc.*"});
  return {.name = "resnet",
          .about = "torchvision's and timm's ResNet: resnet18, 34, 50, 101, 152",
          .backbone = "resnet",
          .tensors = std::move(tensors),
          .hidden = {{"stages.#", "layer@"}},
          .tidy = [](const TensorFile& file, const std::string&) { return without_batch_counts(file); },
          .claims = [](const base::Node& config) { return resnet_size(timm_architecture(config)) != nullptr; },
          .options = options_of_resnet,
          .config = resnet_config};
}

}  // namespace mnemo::weights
