#pragma once

#include <string_view>

namespace mnemo::page {

/// A file that the build put into the program, so that an HTML report is one file that opens offline.
///   "dygraph.min.js", "dygraph.css"   the charts (with their licence as a first comment)
///   every file of src/page/assets by its name
/// Throws InternalError when there is no such file.
std::string_view embedded_file(std::string_view name);

}  // namespace mnemo::page
