#pragma once

#include <functional>
#include <string>

#include "base/node.h"
#include "bundle/model_folder.h"
#include "weights/foreign.h"

namespace mnemo::bundle {

/// The config.json that another library's folder came with, kept beside ours: written back as it was where it still
/// says the same.
inline constexpr const char* kSourceConfig = "source_config.json";

/// Another library's configuration in a folder.
struct PublishedConfig {
  const weights::ForeignFormat* format = nullptr;  ///< null: there is none
  base::Node config = {};
};
/// The file of that name, if it is another library's. Throws InputError naming an architecture that is not known.
PublishedConfig read_published(const std::string& folder, const char* file = kConfigFile);
/// config.json if it is another library's; in a folder of ours that was converted from one, the original's content.
PublishedConfig find_published(const std::string& folder);
/// Returns make(config), the text for our file `file`; empty if the folder has no config. Warns and returns nothing if
/// the config cannot be honoured.
std::string said_by(const PublishedConfig& found, const std::string& folder, const char* file,
                    const std::function<std::string(const PublishedConfig&)>& make);

}  // namespace mnemo::bundle
