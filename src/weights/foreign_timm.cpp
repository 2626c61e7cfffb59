#include "weights/foreign_timm.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "base/error.h"
#include "weights/foreign_config.h"

namespace mnemo::weights {
namespace {

/// The names that timm and the authors of PVT use for the options of our backbones.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kTimmNames = {
    {{"img_size", "image_size"},
     {"patch_size", "patch_size"},
     {"in_chans", "in_channels"},
     {"embed_dim", "dim"},
     {"embed_dims", "dims"},
     {"depth", "num_layers"},
     {"depths", "depths"},
     {"num_heads", "num_heads"},
     {"window_size", "window_size"},
     {"mlp_ratio", "mlp_ratio"},
     {"mlp_ratios", "mlp_ratios"},
     {"sr_ratios", "sr_ratios"},
     {"linear", "linear"},
     {"qkv_bias", "qkv_bias"},
     {"init_values", "layer_scale"},
     {"proj_drop_rate", "dropout"},
     {"drop_path_rate", "drop_path"}}};

/// Our name for an argument; empty if we have no such option.
std::string_view ours_by_timm(std::string_view argument) {
  const auto at = std::find_if(kTimmNames.begin(), kTimmNames.end(),
                               [&](const auto& names) { return names.first == argument; });
  return at == kTimmNames.end() ? std::string_view() : at->second;
}

/// The entry of pretrained_cfg under a key; null where it has none.
const base::Node* pretrained(const base::Node& config, const char* key) {
  const base::Node* about = config.find("pretrained_cfg");
  const base::Node* said = about == nullptr || !about->is_table() ? nullptr : about->find(key);
  return said == nullptr || said->is_null() ? nullptr : said;
}

/// Arguments that timm takes from pretrained_cfg where they are not given: _update_default_model_kwargs in its
/// models/_builder.py.
void take_pretrained(const base::Node& config, const base::Node& factory, base::Node& changes) {
  const auto take = [&](const char* key, const base::Node& value) {
    if (factory.contains(key) && !changes.contains(key)) changes.set(key, value);
  };
  const base::Node* classes = pretrained(config, "num_classes");
  if (classes != nullptr && classes->is_int() && classes->as_int() >= 0) take("num_classes", *classes);
  if (const base::Node* pool = pretrained(config, "global_pool")) take("global_pool", *pool);
  const base::Node* size = pretrained(config, "input_size");
  if (size == nullptr || !size->is_array() || size->size() != 3) return;
  take("in_chans", size->items()[0]);
  const base::Node* fixed = pretrained(config, "fixed_input_size");
  if (fixed != nullptr && *fixed == base::Node(true))
    take("img_size", base::Node::array({size->items()[1], size->items()[2]}));
}

}  // namespace

std::string timm_architecture(const base::Node& config) {
  const base::Node* name = config.find("architecture");
  return name != nullptr && name->is_string() ? name->as_string() : std::string();
}

base::Node timm_input_size(const base::Node& config) {
  const base::Node* size = pretrained(config, "input_size");
  if (size == nullptr) return base::Node::array({224, 224});
  base::require(size->is_array() && size->size() == 3,
                "{}: 'pretrained_cfg.input_size': expected [channels, height, width], found {}", config.place().text(),
                size->found());
  return size_pair(base::Node::array({size->items()[1], size->items()[2]}));
}

base::Node timm_changes(const base::Node& config, const base::Node& factory) {
  base::Node changes = member_or(config, "model_args", base::Node::table());
  base::require(changes.is_table(), "{}: 'model_args': expected a table, found {}", config.place().text(),
                changes.found());
  for (const char* key : {"num_classes", "global_pool"}) {
    if (const base::Node* beside = config.find(key); beside != nullptr && !changes.contains(key))
      changes.set(key, *beside);
  }
  take_pretrained(config, factory, changes);
  changes.set_path("model_args");
  // Even if a factory offers no choice of pooling (PVT), its config has this key.
  if (!factory.contains("global_pool")) changes.erase("global_pool");
  for (const char* key : {"img_size", "window_size", "patch_size"}) {
    const base::Node* size = factory.contains(key) ? changes.find(key) : nullptr;
    if (size == nullptr) continue;
    changes.set(key, factory.at(key).is_array() ? size_pair(*size) : size_square(*size));
  }
  return changes;
}

base::Node timm_model(std::string_view type, const base::Node& arguments, double norm_eps, std::string_view pool) {
  base::Node backbone = base::Node::table({{"type", type}, {"norm_eps", norm_eps}});
  for (const auto& [argument, value] : arguments.members()) {
    const std::string_view ours = ours_by_timm(argument);
    if (!ours.empty() && !value.is_null()) backbone.set(ours, value);
  }
  return base::Node::table(
      {{"backbone", backbone},
       {"head", base::Node::table(
                    {{"type", "classification"}, {"num_classes", arguments.at("num_classes")}, {"pool", pool}})}});
}

base::Node timm_arguments_of(const models::ModelOptions& options, base::Node factory) {
  const base::Node backbone = std::visit([](const auto& chosen) { return base::write_options(chosen); },
                                         options.backbone.vision());
  base::Node arguments = base::Node::table();
  for (const auto& [argument, value] : factory.members()) {
    const std::string_view ours = ours_by_timm(argument);
    if (!ours.empty()) arguments.set(argument, backbone.at(ours));
    if (argument == "num_classes") arguments.set(argument, options.head.table().at("num_classes").as_int());
    if (argument == "global_pool") arguments.set(argument, value);
  }
  return arguments;
}

base::Node timm_config(std::string_view architecture, int64_t num_features, const base::Node& arguments) {
  base::Node config = base::Node::table(
      {{"architecture", architecture}, {"num_classes", arguments.at("num_classes")}, {"num_features", num_features}});
  if (const base::Node* pool = arguments.find("global_pool")) config.set("global_pool", *pool);
  config.set("model_args", arguments);
  return config;
}

}  // namespace mnemo::weights
