#pragma once

#include <optional>
#include <string>

#include "data/detection/detection_options.h"
#include "weights/foreign.h"

namespace mnemo::bundle {

/// How images become the input of the detector in a folder: from detection.json, or from another library's config.json;
/// nothing if there is neither. Throws InputError for an invalid file.
std::optional<data::DetectionInput> find_detection_input(const std::string& folder);
/// Throws InputError if there is neither.
data::DetectionInput read_detection_input(const std::string& folder);

/// Puts what a folder says of it into a config.json of another library's detector. Throws InputError "WHO: ..." for
/// what the format cannot store.
void add_detection_input(base::Node& config, const weights::ForeignDetector& format, const std::string& folder,
                         const std::string& who);
/// Whether a config.json of that format says what the folder says.
bool says_detection_input(const base::Node& config, const weights::ForeignDetector& format, const std::string& folder);

}  // namespace mnemo::bundle
