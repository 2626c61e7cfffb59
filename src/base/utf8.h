#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace mnemo::base {

/// The byte order mark that some editors write before a text. It is not part of the text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// The first character of a text.
///   length > 0   a valid character of that many bytes, with its code point
///   length = 0   the text ends inside a character that is valid so far
///   length < 0   the first -length bytes (1 to 3) can never become a character (Unicode's maximal subpart)
struct Utf8Character {
  char32_t code_point = 0;
  int length = 0;
};

/// Decodes the first character of a non-empty text. Overlong forms, surrogates and code points above U+10FFFF are
/// invalid (The Unicode Standard, table 3-7).
Utf8Character front_character(std::string_view text);

/// The smallest and the largest second byte of a character of several bytes, by its first byte.
std::pair<unsigned char, unsigned char> second_byte_range(unsigned char first);

/// Appends a code point as UTF-8. Throws InternalError for surrogates and values above U+10FFFF.
void append_character(std::string& out, char32_t code_point);

/// Number of characters of a valid text: bytes that are not continuation bytes. Also defined for invalid text.
int64_t count_characters(std::string_view text);

/// Returns the text with each invalid part replaced by U+FFFD, and removes it from `text`. With `at_end` false, an
/// incomplete character at the end stays in `text`.
std::string take_valid_utf8(std::string& text, bool at_end);

}  // namespace mnemo::base
