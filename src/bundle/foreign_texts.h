#pragma once

#include <string>

#include "bundle/load.h"

namespace mnemo::bundle {

/// config.json of a model of texts in another library's format: that of its folder if it came from there and says the
/// same, else made anew, with the labels and special tokens of the files beside the model. Either says that weights are
/// float32, as they are written. Throws InputError naming an option that the format cannot express.
std::string text_config_for(const weights::ForeignFormat& format, const AnyModel& loaded, const std::string& folder);

}  // namespace mnemo::bundle
