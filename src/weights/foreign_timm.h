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

/// The image size of a timm config.json, [height, width]: pretrained_cfg.input_size [C,H,W], or 224 x 224.
base::Node timm_input_size(const base::Node& config);

/// The arguments that a timm config.json changes relative to `factory`: `model_args`, plus its top-level num_classes
/// and global_pool if they are missing there, plus those of `pretrained_cfg`. Image and window sizes become
/// [height, width], patch sizes one number.
base::Node timm_changes(const base::Node& config, const base::Node& factory);

/// A factory's arguments as a config.json stores them. Throws InputError naming a key that `Arguments` does not have.
template <class Arguments>
Arguments timm_arguments(const base::Node& config, Arguments factory) {
  base::read_options(timm_changes(config, base::write_options(factory)), factory);
  return factory;
}

/// The [model] table for a factory's arguments: a backbone of that type with the arguments that are options of ours,
/// and a head with that `pool`.
base::Node timm_model(std::string_view type, const base::Node& arguments, double norm_eps, std::string_view pool);

/// A factory's arguments with the values of a model's options. Arguments that the factory does not have are left out,
/// except num_classes and global_pool.
base::Node timm_arguments_of(const models::ModelOptions& options, base::Node factory);

/// The config.json of a model with these arguments.
base::Node timm_config(std::string_view architecture, int64_t num_features, const base::Node& arguments);

}  // namespace mnemo::weights
