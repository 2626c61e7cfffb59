#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// Number of edits (insert, delete, replace, swap neighbours) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to a mistyped `name`, if it is close enough (about a third of the letters wrong), where the
/// first one wins a tie; or else the only one that begins with `name` and an underscore.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

/// The end of a message about an unknown name: `; did you mean 'mem_len'?`, or `; known: a, b, c` if none is close.
std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace mnemo::base
