#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"

/// The functions of bundle.h, load.h and model_folder.h for a model that is packed next: large weights stay in the
/// mapped file (weights::map_safetensors), laid out as they are there.
namespace mnemo::bundle {

Bundle map_bundle(const std::string& path, const std::optional<std::string>& checkpoint = {});
LoadedModel map_model(const std::string& folder);
AnyModel map_any(const std::string& folder);
ModelFolder map_model_folder(const std::string& path, const std::vector<std::string>& vocabulary);

}  // namespace mnemo::bundle
