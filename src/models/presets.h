#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "models/options.h"

namespace mnemo::models {

/// A published model: its options under a name, `[model] preset = "NAME"`.
struct Preset {
  std::string_view name;
  std::string_view about;        ///< one line: what it is, and from where
  std::string_view toml;         ///< the keys of [model]; those left out have their defaults
  int64_t vocab_size;            ///< words of the data it was published for; 0: a model of images
  double published = 0;          ///< parameters in millions, as published; 0: no figure
  std::string_view figure = {};  ///< where the published figure is from, and why ours differs if it does
};

/// Every preset, in the order it is shown.
const std::vector<Preset>& presets();

/// `model`, the table of a recipe's [model], with its `preset` carried out: the preset's keys, over them those of
/// `model`. Tables merge key by key; lists, and tables of another `type`, are replaced. The same table where it names
/// none. Throws InputError naming file, line and the nearest name for an unknown one.
base::Node with_preset(const base::Node& model);

/// A table of model options that may name a preset.
ModelOptions read_model_options(const base::Node& model);

}  // namespace mnemo::models
