#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// When output is coloured. automatic: on a terminal, unless NO_COLOR is set or TERM is "dumb"; CLICOLOR_FORCE and
/// FORCE_COLOR colour everything.
enum class Colour { automatic, always, never };

/// For the whole process; initially automatic.
void set_colour(Colour when);

/// Whether what is written to this file descriptor is coloured.
bool is_coloured(int descriptor);

/// The text between the ANSI codes of a style ("1;31") and of its end, or as it is.
std::string styled(std::string_view text, std::string_view style, bool coloured);

inline constexpr std::string_view kErrorStyle = "1;31", kWarningStyle = "1;33", kBarStyle = "32";

}  // namespace mnemo::base
