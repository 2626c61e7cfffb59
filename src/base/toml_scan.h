#pragma once

#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Refuses TOML text whose brackets, headers and dotted keys nest deeper than the limits, or that holds far more
/// values. toml++ recurses on these, also when it destroys what it has read, so they must be known before it runs.
/// Text that is not valid TOML may pass: toml++ stops at its first error.
void scan_toml(std::string_view text, const std::string& file, const ReadLimits& limits);

}  // namespace mnemo::base
