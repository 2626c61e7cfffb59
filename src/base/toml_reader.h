#pragma once

#include <string_view>

#include "base/node.h"

namespace mnemo::base {

/// Reads one TOML value without line breaks: `3`, `"a"`, `[1, 2]`. Does not set places.
/// Throws InputError, without a position, if it is not a value.
Node parse_toml_value(std::string_view text);

}  // namespace mnemo::base
