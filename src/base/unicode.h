#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// The code points of a UTF-8 text. Throws InputError naming `where`, the byte offset and the byte found if it is not
/// valid.
std::u32string code_points(std::string_view text, std::string_view where);

/// Encodes code points as UTF-8.
std::string utf8(std::u32string_view text);

/// The general category of a code point in two letters: "Lu", "Nd", "Cn".
std::string_view category(char32_t c);

/// White space as Python's str.isspace defines it: bidirectional class WS, B or S, or category Zs.
bool is_space(char32_t c);

/// White space as Unicode's property White_Space has it: without U+001C to U+001F.
bool is_white_space(char32_t c);

/// Lower case of one code point (simple mapping).
char32_t lower(char32_t c);

/// Lower case of a text as Python's str.lower: U+0130 becomes two code points, and a capital sigma at the end of a word
/// becomes a final sigma.
std::u32string lower(std::u32string_view text);

/// The normal forms of Unicode (UAX #15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// The text in that form. It must be valid UTF-8; otherwise throws InternalError.
std::string normalise(std::string_view text, NormalForm form);

}  // namespace mnemo::base
