#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// Throws InputError unless the path is a folder: "PATH: no such folder" + `more`, or "PATH: expected `expected`, found
/// a file".
void require_folder(const std::string& path, std::string_view expected, std::string_view more = "");

}  // namespace mnemo::base
