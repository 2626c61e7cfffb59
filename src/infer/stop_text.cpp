#include "infer/stop_text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::infer {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    base::require(!stop.empty(), "stop: expected a text of one character or more, found ''");
    base::require(!base::first_invalid_utf8(stop), "stop: expected valid UTF-8, found '{}'", base::printable(stop, 80));
  }
}

std::string StopText::put(std::string_view piece) {
  held_ += piece;
  // The one that is complete first, wherever the pieces end; of several the longest.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) continue;
    begin = at;
    end = at + stop.size();
  }
  if (begin != std::string::npos) {
    found_ = true;
    held_.resize(begin);
    return finish();
  }
  // Held back is the longest end of the text that begins a stop text.
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > kept; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) kept = size;
    }
  }
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopText::finish() { return std::exchange(held_, {}); }

}  // namespace mnemo::infer
