#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mnemo::text {

/// The bytes that GPT-2 writes as these characters: printable bytes of Latin-1 as themselves, the others from U+0100
/// on. Nothing if one of the characters represents no byte.
std::optional<std::string> bytes_of_characters(std::string_view characters);

/// The characters that GPT-2 writes for these bytes.
std::string characters_of_bytes(std::string_view bytes);

}  // namespace mnemo::text
