#include "data/text/lines.h"

#include "base/error.h"

namespace mnemo::data {

std::string LinePlace::at(int64_t column) const { return fmt::format("{}:{}:{}", file, line, column); }

void LineSplitter::hand_on(std::string_view line) {
  ++place_.line;
  base::require(static_cast<int64_t>(line.size()) <= max_line_,
                "{}: expected lines of at most {} bytes, found a longer one", place_.at(max_line_ + 1), max_line_);
  if (line.ends_with('\r')) line.remove_suffix(1);
  use_(place_, line);
}

void LineSplitter::put(std::string_view piece) {
  for (size_t newline; (newline = piece.find('\n')) != std::string_view::npos; piece.remove_prefix(newline + 1)) {
    if (pending_.empty()) {
      hand_on(piece.substr(0, newline));
    } else {
      pending_ += piece.substr(0, newline);
      hand_on(pending_);
      pending_.clear();
    }
  }
  pending_ += piece;
  if (static_cast<int64_t>(pending_.size()) > max_line_ + 1) hand_on(pending_);  // throws before it fills the memory
}

void LineSplitter::finish() {
  if (!pending_.empty()) hand_on(pending_);
  pending_.clear();
}

void for_each_line(const text::TextSource& text, int64_t max_line,
                   const std::function<void(const LinePlace&, std::string_view)>& use) {
  LineSplitter lines(text.path(), max_line, use);
  text.for_each_chunk([&](std::string_view chunk) {
    lines.put(chunk);
    return true;
  });
  lines.finish();
}

}  // namespace mnemo::data
