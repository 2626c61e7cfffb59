#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// Bytes as Base64 (RFC 4648), with padding.
std::string to_base64(std::string_view bytes);

/// The bytes of a Base64 text, with or without padding, in one line or several, as `base64 FILE` prints it. Throws
/// InputError naming `where` and the position.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace mnemo::base
