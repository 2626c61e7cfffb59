#pragma once

#include <string_view>

namespace mnemo::base {

/// Whether a name matches the pattern: `*` matches any number of characters, including dots; `?` matches any one
/// character.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace mnemo::base
