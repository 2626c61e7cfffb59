#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/colour.h"
#include "base/terminal_width.h"

namespace mnemo::base {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K", kStyle = "\x1b[";

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

/// Null: that of stderr.
thread_local std::shared_ptr<Console> own_console;

/// The first `columns` characters, and every code of a style, which takes no room.
std::string cut(std::string_view text, size_t columns) {
  std::string shown;
  size_t used = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    const bool style = text.substr(at).starts_with(kStyle);
    if (style) {
      end = std::min(text.find('m', at), text.size() - 1) + 1;
    } else {
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      ++used;
    }
    if (style || used <= columns) shown += text.substr(at, end - at);
    at = end;
  }
  return shown;
}

}  // namespace

Console::Console() : sink_(write_stderr), terminal_(stderr_is_terminal()), to_stderr_(true) {}

Console::Console(Sink sink, bool terminal) : sink_(std::move(sink)), terminal_(terminal) {}

void Console::write(LogLevel level, std::string_view text) {
  std::string line = level == LogLevel::warning
                         ? styled("warning:", kWarningStyle, to_stderr_ && is_coloured(STDERR_FILENO)) + " "
                     : level == LogLevel::debug ? "debug: "
                                                : "";
  line += text;
  line += '\n';
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) line = std::string(kEraseLine) + line + status_;
  sink_(line);
}

void Console::set_status(std::string_view text) {
  const size_t columns = terminal_columns();
  const std::lock_guard lock(mutex_);
  if (!terminal_ || (status_.empty() && text.empty())) return;
  status_ = cut(text, columns - 1);
  sink_(std::string(kEraseLine) + status_);
}

std::shared_ptr<Console> console() {
  static const auto of_process = std::make_shared<Console>();
  return own_console ? own_console : of_process;
}

ConsoleScope::ConsoleScope(std::shared_ptr<Console> console) : before_(own_console) {
  if (console) own_console = std::move(console);
}

ConsoleScope::~ConsoleScope() { own_console = std::move(before_); }

void set_log_level(LogLevel level) { console()->set_level(level); }
LogLevel log_level() { return console()->level(); }
bool log_is_terminal() { return console()->is_terminal(); }
void set_status_line(std::string_view text) { console()->set_status(text); }

size_t terminal_columns() { return static_cast<size_t>(terminal_width()); }

}  // namespace mnemo::base
