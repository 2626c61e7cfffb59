#include "data/text/lines.h"

#include "base/error.h"

namespace mnemo::data {

std::string LinePlace::at(int64_t column) const { return fmt::format("{}:{}:{}", file, line, column); }

void for_each_line(const text::TextSource& text, int64_t max_line,
                   const std::function<void(const LinePlace&, std::string_view)>& use) {
  LinePlace place{text.path(), 0};
  std::string pending;
  const auto hand_on = [&](std::string_view line) {
    ++place.line;
    base::require(static_cast<int64_t>(line.size()) <= max_line,
                  "{}: expected lines of at most {} bytes, found a longer one", place.at(max_line + 1), max_line);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(place, line);
  };
  text.for_each_chunk([&](std::string_view chunk) {
    for (size_t newline; (newline = chunk.find('\n')) != std::string_view::npos; chunk.remove_prefix(newline + 1)) {
      if (pending.empty()) {
        hand_on(chunk.substr(0, newline));
      } else {
        pending += chunk.substr(0, newline);
        hand_on(pending);
        pending.clear();
      }
    }
    pending += chunk;
    if (static_cast<int64_t>(pending.size()) > max_line + 1)
      hand_on(pending);  // throws before the line fills the memory
    return true;
  });
  if (!pending.empty()) hand_on(pending);
}

}  // namespace mnemo::data
