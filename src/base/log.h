#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace mnemo::base {

enum class LogLevel { debug, info, warning, silent };

/// Messages below `level` are dropped; info at first.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Where the log and the status line go; stderr at first, and again with an empty function. `terminal` says whether
/// the status line is drawn.
void set_log_sink(std::function<void(std::string_view)> sink, bool terminal = false);

/// Whether the sink is a terminal; always false when the environment has TERM=dumb.
bool log_is_terminal();
/// Columns of the terminal on stderr; 80 when unknown.
size_t terminal_columns();

/// Shows one line below the log, on a terminal only, and replaces the one shown before; an empty text removes it. It
/// is cut to the terminal's width. Log lines go above it. Any thread may call this and the functions below.
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

/// Logs a line as it is.
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
