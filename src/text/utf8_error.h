#pragma once

#include <cstdint>
#include <string_view>

namespace mnemo::text {

/// Advice for a file that is not UTF-8.
inline constexpr std::string_view kConvertFile = "convert it to UTF-8, for example with iconv";
inline constexpr std::string_view kUseBytes = "convert it to UTF-8, or use unit = \"bytes\" for arbitrary files";

/// Throws InputError naming `where`, the byte offset and the byte found, with that advice.
[[noreturn]] void invalid_utf8(std::string_view where, int64_t offset, std::string_view rest, std::string_view advice);
/// Throws the same unless the text is UTF-8; advises to convert it.
void require_utf8(std::string_view where, std::string_view text);

}  // namespace mnemo::text
