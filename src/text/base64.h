#pragma once

#include <string>
#include <string_view>

namespace mnemo::text {

/// The bytes of a Base64 text (RFC 4648), with or without padding. Throws InputError naming `where` and the position.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace mnemo::text
