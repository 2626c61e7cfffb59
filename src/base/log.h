#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace mnemo::base {

enum class LogLevel { debug, info, warning, silent };

/// Messages below `level` are dropped; initially info.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Sets the destination of the log and the status line; stderr by default or with an empty function. `terminal`
/// determines whether the status line is drawn.
void set_log_sink(std::function<void(std::string_view)> sink, bool terminal = false);

/// Whether the destination is a terminal; always false with TERM=dumb in the environment.
bool log_is_terminal();
/// COLUMNS of the environment, or the columns of the terminal on stderr; 80 if unknown.
size_t terminal_columns();

/// On a terminal, shows one line below the log, replacing the previous one; empty text removes it. It is truncated to
/// the terminal's width, and log lines appear above it. This and the functions below are thread-safe.
void set_status_line(std::string_view text);

namespace detail {
void write_log(LogLevel level, std::string_view text);
}

/// Logs a line "warning: ...". Arguments as for fmt::format.
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::warning)
    detail::write_log(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

/// Logs a line unchanged.
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::info)
    detail::write_log(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}

/// Logs a line "debug: ...".
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::debug)
    detail::write_log(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mnemo::base
