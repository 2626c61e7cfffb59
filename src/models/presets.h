#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "models/options.h"

namespace mnemo::models {

/// A published model: a name for its options, `[model] preset = "NAME"`.
struct Preset {
  std::string_view name;
  std::string_view about;        ///< description in one line, with its source
  std::string_view toml;         ///< the keys of [model]; missing keys have their defaults
  int64_t vocab_size;            ///< vocabulary size of the data it was published for; 0: an image model
  double published = 0;          ///< parameters in millions, as published; 0: not published
  std::string_view figure = {};  ///< source of the published figure, and why ours differs, if it does
};

/// Every preset, in display order.
const std::vector<Preset>& presets();

/// Expands the `preset` key of `model`, the table of a recipe's [model]: the preset's keys, overridden by those of
/// `model`. Tables merge key by key; lists, and tables with a different `type`, are replaced. Returns the table
/// unchanged if it names no preset. Throws InputError with file, line and the nearest name for an unknown preset.
base::Node with_preset(const base::Node& model);

/// Reads a table of model options that may name a preset.
ModelOptions read_model_options(const base::Node& model);

}  // namespace mnemo::models
