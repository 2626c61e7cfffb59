#pragma once

#include <map>
#include <string>

namespace mnemo::bundle {

/// generation_config.json of a folder, by its name: how a published model wants to be searched. For a translation model
/// that keeps these settings in its config.json, as the first published ones do, a file with those. Empty if the folder
/// has neither.
std::map<std::string, std::string> generation_file_of(const std::string& folder);
inline constexpr const char* kGenerationConfig = "generation_config.json";

}  // namespace mnemo::bundle
