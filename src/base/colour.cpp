#include "base/colour.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace mnemo::base {
namespace {

std::atomic<Colour> chosen = Colour::automatic;

/// Whether the variable is there and not empty.
bool says(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

void set_colour(Colour when) { chosen = when; }

bool is_coloured(int descriptor) {
  if (chosen != Colour::automatic) return chosen == Colour::always;
  if (says("NO_COLOR")) return false;
  if (says("FORCE_COLOR") || says("CLICOLOR_FORCE")) return true;
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::string styled(std::string_view text, std::string_view style, bool coloured) {
  return coloured ? fmt::format("\x1b[{}m{}\x1b[0m", style, text) : std::string(text);
}

}  // namespace mnemo::base
