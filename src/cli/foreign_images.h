#pragma once

#include <map>
#include <string>

#include "base/node.h"

namespace mnemo::cli {

/// What another library's folder says of images beside its weights, as files of ours: images.json from timm's `pretrained_cfg` or from Hugging
/// Face's preprocessor_config.json, classes.txt from `label_names` or `id2label`. What is not said, or cannot be honoured, is left out; the
/// latter with a warning.
std::map<std::string, std::string> image_files_of(const std::string& folder, const base::Node& config);

}  // namespace mnemo::cli
