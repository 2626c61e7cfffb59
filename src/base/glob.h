#pragma once

#include <string_view>

namespace mnemo::base {

/// Whether a name is of that pattern: `*` stands for any characters, dots too, or none; `?` for any one; others for
/// themselves.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace mnemo::base
