#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// Escapes text for an HTML element or a double-quoted attribute: & < > " ' are escaped, invalid UTF-8 and control
/// characters not allowed in HTML become U+FFFD.
std::string html_escape(std::string_view text);

/// JSON for the inside of <script>: "<", U+2028 and U+2029, which JSON has only inside strings, become the escapes that
/// read as the same text, so that no string ends the script.
std::string script_escape(std::string_view json);

}  // namespace mnemo::base
