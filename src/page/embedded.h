#pragma once

#include <string_view>

namespace mnemo::page {

/// A file embedded in the program by the build, so that an HTML report is a single file that works offline.
///   "dygraph.min.js", "dygraph.css"   the charts (with their licence as a first comment)
///   every file of src/page/assets by its name
/// Throws InternalError if there is no such file.
std::string_view embedded_file(std::string_view name);

}  // namespace mnemo::page
