#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace mnemo::base {

/// Columns of the terminal at stderr, or those of the variable COLUMNS; 80 if there is neither.
inline int terminal_width() {
  const char* chosen = std::getenv("COLUMNS");
  if (const int columns = chosen != nullptr ? std::atoi(chosen) : 0; columns > 0) return columns;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace mnemo::base
