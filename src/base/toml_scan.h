#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Rejects TOML text whose brackets, headers and dotted keys are nested deeper than the limits, or that has far more
/// values. toml++ recurses on these, also when it destroys its result, so they must be checked before it runs. Invalid
/// TOML may pass, because toml++ stops at the first error.
void scan_toml(std::string_view text, const std::string& file, const ReadLimits& limits);

}  // namespace mnemo::base
