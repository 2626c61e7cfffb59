#pragma once

#include <cstdint>
#include <string_view>

namespace mnemo::data {

/// Throws InputError naming `where`, the byte offset and the byte found.
[[noreturn]] void invalid_utf8(std::string_view where, int64_t offset, std::string_view rest);

}  // namespace mnemo::data
