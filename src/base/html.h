#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// Escapes text for an HTML element or a double-quoted attribute: & < > " ' are escaped, invalid UTF-8 and control
/// characters not allowed in HTML become U+FFFD.
std::string html_escape(std::string_view text);

/// JSON for use inside <script>: "<", U+2028 and U+2029, which occur only in JSON strings, are replaced by equivalent
/// escapes, so that no string can end the script.
std::string script_escape(std::string_view json);

}  // namespace mnemo::base
