#pragma once

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace mnemo::base {

enum class LogLevel { debug, info, warning, silent };

/// How far a long job is.
struct ProgressPoint {
  std::string_view job;
  int64_t done = 0, total = 0;  ///< total: 0 or less when unknown
  std::string_view note;        ///< "loss 2.31"
};

/// Where log lines, the status line and progress of some work go. Several threads may write to one.
class Console {
 public:
  using Sink = std::function<void(std::string_view)>;

  /// stderr.
  Console();
  /// `sink` receives whole lines with their ends; `terminal` determines whether the status line is drawn there.
  explicit Console(Sink sink, bool terminal = false);

  /// Messages below `level` are dropped; initially info.
  void set_level(LogLevel level) { level_ = level; }
  LogLevel level() const { return level_; }
  /// Whether it is a terminal; stderr is none with TERM=dumb in the environment.
  bool is_terminal() const { return terminal_; }
  /// Receives progress in place of the status line and the log. Set it before the console is used.
  std::function<void(const ProgressPoint&)> on_progress = {};

  void write(LogLevel level, std::string_view text);
  void set_status(std::string_view text);

 private:
  std::mutex mutex_;
  std::atomic<LogLevel> level_ = LogLevel::info;
  Sink sink_;
  bool terminal_;
  bool to_stderr_ = false;  ///< and may be coloured
  std::string status_;
};

/// Where this thread writes: to the console of the innermost ConsoleScope, else to the one of stderr, which is the
/// process's.
std::shared_ptr<Console> console();

/// While it lives, what this thread logs goes to `console`, or where it went before if that is null. Threads that the
/// library starts meanwhile follow.
class ConsoleScope {
 public:
  explicit ConsoleScope(std::shared_ptr<Console> console);
  ~ConsoleScope();
  ConsoleScope(const ConsoleScope&) = delete;
  ConsoleScope& operator=(const ConsoleScope&) = delete;

 private:
  std::shared_ptr<Console> before_;
};

// The functions below act on this thread's console.

void set_log_level(LogLevel level);
LogLevel log_level();
bool log_is_terminal();
/// COLUMNS of the environment, or the columns of the terminal on stderr; 80 if unknown.
size_t terminal_columns();

/// On a terminal, shows one line below the log, replacing the previous one; empty text removes it. It is truncated to
/// the terminal's width, and log lines appear above it.
void set_status_line(std::string_view text);

/// Logs a line "warning: ...". Arguments as for fmt::format.
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  const std::shared_ptr<Console> to = console();
  if (to->level() <= LogLevel::warning) to->write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

/// Logs a line unchanged.
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  const std::shared_ptr<Console> to = console();
  if (to->level() <= LogLevel::info) to->write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}

/// Logs a line "debug: ...".
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  const std::shared_ptr<Console> to = console();
  if (to->level() <= LogLevel::debug) to->write(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mnemo::base
