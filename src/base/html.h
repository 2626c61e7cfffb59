#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// Text for the inside of an HTML element or of an attribute in double quotes: & < > " ' are escaped, bytes that are
/// not UTF-8 and control characters that HTML forbids become U+FFFD.
std::string html_escape(std::string_view text);

/// JSON for the inside of <script>: "<", U+2028 and U+2029, which JSON has only inside strings, become the escapes that
/// read as the same text, so that no string ends the script.
std::string script_escape(std::string_view json);

}  // namespace mnemo::base
