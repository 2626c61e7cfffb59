#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// Whether a name matches the pattern: `*` matches any number of characters, including dots; `?` matches any one
/// character.
bool matches(std::string_view pattern, std::string_view name);
/// Whether one of the patterns does.
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace mnemo::base
