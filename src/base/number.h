#pragma once

#include <cstdint>
#include <string_view>

namespace mnemo::base {

/// Numbers as recipes write them: 10, 1_000, -3, 2.5e-3. Throws InputError "expected a whole number, found 'x'", which
/// says so if a number does not fit in 64 bits.
int64_t parse_whole_number(std::string_view text);
/// A finite number.
double parse_number(std::string_view text);

}  // namespace mnemo::base
