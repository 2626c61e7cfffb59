#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace mnemo::base {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

struct Log {
  std::mutex mutex;
  std::atomic<LogLevel> level = LogLevel::info;
  std::function<void(std::string_view)> sink = write_stderr;
  bool terminal = stderr_is_terminal();
  std::string status;
};

Log& the_log() {
  static Log log;
  return log;
}

/// The first `columns` characters.
std::string_view cut(std::string_view text, size_t columns) {
  size_t end = 0, used = 0;
  while (end < text.size() && used < columns) {
    ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    ++used;
  }
  return text.substr(0, end);
}

}  // namespace

void set_log_level(LogLevel level) { the_log().level = level; }

LogLevel log_level() { return the_log().level; }

void set_log_sink(std::function<void(std::string_view)> sink, bool terminal) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.status.clear();
  log.terminal = sink ? terminal : stderr_is_terminal();
  log.sink = sink ? std::move(sink) : write_stderr;
}

bool log_is_terminal() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return log.terminal;
}

size_t terminal_columns() {
  const char* chosen = std::getenv("COLUMNS");
  if (const int columns = chosen != nullptr ? std::atoi(chosen) : 0; columns > 0) return static_cast<size_t>(columns);
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void set_status_line(std::string_view text) {
  Log& log = the_log();
  const size_t columns = terminal_columns();
  const std::lock_guard lock(log.mutex);
  if (!log.terminal || (log.status.empty() && text.empty())) return;
  log.status = cut(text, columns - 1);
  log.sink(std::string(kEraseLine) + log.status);
}

void detail::write_log(LogLevel level, std::string_view text) {
  Log& log = the_log();
  std::string line = level == LogLevel::warning ? "warning: " : level == LogLevel::debug ? "debug: " : "";
  line += text;
  line += '\n';
  const std::lock_guard lock(log.mutex);
  if (!log.status.empty()) line = std::string(kEraseLine) + line + log.status;
  log.sink(line);
}

}  // namespace mnemo::base
