#pragma once

#include <optional>
#include <string>

#include "data/detection/detection_options.h"

namespace mnemo::bundle {

/// How images become the input of the detector in a folder: from detection.json, or from another library's config.json;
/// nothing if there is neither. Throws InputError for an invalid file.
std::optional<data::DetectionInput> find_detection_input(const std::string& folder);
/// Throws InputError if there is neither.
data::DetectionInput read_detection_input(const std::string& folder);

}  // namespace mnemo::bundle
