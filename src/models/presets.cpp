#include "models/presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "base/node_merge.h"
#include "models/detection_options.h"
#include "models/encoder_presets.h"
#include "models/language_presets.h"
#include "models/pair_presets.h"
#include "models/vision_presets.h"

namespace mnemo::models {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> list;
    add_language_presets(list);
    add_encoder_presets(list);
    add_pair_presets(list);
    add_vit_presets(list);
    add_pyramid_presets(list);
    add_resnet_presets(list);
    add_detector_presets(list);
    return list;
  }();
  return all;
}

base::Node with_preset(const base::Node& model) {
  const base::Node* given = model.find("preset");
  if (given == nullptr) return model;
  base::Node rest = model;
  rest.erase("preset");
  if (given->is_null()) return rest;
  base::require(given->is_string(), "{}: 'preset': expected string, found {}", given->place().text(), given->found());
  const std::string& name = given->as_string();
  if (name == "unset") return rest;
  const auto found = std::find_if(presets().begin(), presets().end(),
                                  [&](const Preset& preset) { return preset.name == name; });
  if (found == presets().end()) {
    base::input_error("{}: 'model.preset': unknown preset {}{}", given->place().text(), base::in_quotes(name, '\''),
                      base::suggestion(name, ModelOptions::preset_names()));
  }
  const base::Node under = base::parse_toml(found->toml, fmt::format("preset {}", found->name));
  base::Node merged = base::merge(under, rest);
  merged.set_place(model.place());
  merged.set_path(model.path());
  return merged;
}

ModelOptions read_model_options(const base::Node& model) {
  return base::read_options<ModelOptions>(with_preset(model));
}

}  // namespace mnemo::models
