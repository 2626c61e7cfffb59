#pragma once

#include <string>
#include <string_view>

#include "base/node.h"
#include "base/options.h"
#include "models/options.h"

/// Shared by the formats whose config.json is like timm's: it names a factory, and lists differences from the factory's
/// arguments.
namespace mnemo::weights {

/// The name of a timm factory in config.json; empty if the config belongs to another library.
std::string timm_architecture(const base::Node& config);

/// Height and width of the images that a timm config.json speaks of: pretrained_cfg.input_size [C,H,W], or 224 each.
base::Node timm_input_size(const base::Node& config);

/// What a timm config.json changes of `factory`, its factory's arguments: `model_args`, with num_classes and
/// global_pool from beside it where they are missing there. Images and windows are [height, width] in it, patches one
/// number.
base::Node timm_changes(const base::Node& config, const base::Node& factory);

/// A factory's arguments as a config.json has them. Throws InputError naming a key that `Arguments` does not have.
template <class Arguments>
Arguments timm_arguments(const base::Node& config, Arguments factory) {
  base::read_options(timm_changes(config, base::write_options(factory)), factory);
  return factory;
}

/// The [model] table of a factory's arguments: the backbone of that type with those among them that are options of
/// ours, and a head over `pool`.
base::Node timm_model(std::string_view type, const base::Node& arguments, double norm_eps, std::string_view pool);

/// A factory's arguments with the values that a model's options have; those that are none of its options are left out,
/// but for num_classes and global_pool.
base::Node timm_arguments_of(const models::ModelOptions& options, base::Node factory);

/// config.json of a model with those arguments.
base::Node timm_config(std::string_view architecture, int64_t num_features, const base::Node& arguments);

}  // namespace mnemo::weights
