#include "cli/input_lines.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"

namespace mnemo::cli {
namespace {

constexpr int kSignalCheck = 200;  // milliseconds

constexpr size_t kPiece = 1 << 16;

/// Reads the available bytes, at most kPiece; empty at the end.
std::string read_piece() {
  std::string piece(kPiece, '\0');
  ssize_t count;
  while ((count = ::read(STDIN_FILENO, piece.data(), piece.size())) < 0 && errno == EINTR) {
  }
  base::require(count >= 0, "standard input: cannot be read: {}", std::strerror(errno));
  piece.resize(static_cast<size_t>(count));
  return piece;
}

bool is_ready(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, milliseconds) > 0;
}

}  // namespace

bool InputLines::read(size_t count, std::vector<std::string>& lines) {
  lines.clear();
  while (lines.size() < count && !is_too_long() && (take(lines) || ((lines.empty() || is_ready(0)) && fill()))) {
  }
  base::require(!lines.empty() || !is_too_long(),
                "standard input:{}: expected lines of at most {} bytes, found a longer one", taken_ + 1, kMaxLine);
  if (lines.empty() && !pending_.empty()) lines.push_back(std::exchange(pending_, {}));  // the last without an end
  if (taken_ == 0 && !lines.empty() && lines.front().starts_with(base::kByteOrderMark))
    lines.front().erase(0, base::kByteOrderMark.size());
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  taken_ += static_cast<int64_t>(lines.size());
  return !lines.empty();
}

bool InputLines::is_too_long() const {
  const size_t end = std::min(pending_.find('\n', from_), pending_.size());
  return end - from_ > kMaxLine;
}

bool InputLines::take(std::vector<std::string>& lines) {
  const size_t end = pending_.find('\n', from_);
  if (end == std::string::npos) return false;
  lines.push_back(pending_.substr(from_, end - from_));
  from_ = end + 1;
  return true;
}

bool InputLines::fill() {
  pending_.erase(0, std::exchange(from_, 0));
  while (!is_ready(kSignalCheck)) {
    if (base::pending_signal() != 0) return false;
  }
  const std::string piece = read_piece();
  pending_ += piece;
  return !piece.empty();
}

std::string read_standard_input(uint64_t max_bytes) {
  std::string text;
  for (std::string piece = read_piece(); !piece.empty(); piece = read_piece()) {
    text += piece;
    base::require(text.size() <= max_bytes, "standard input: expected at most {} bytes, found more", max_bytes);
  }
  return text;
}

}  // namespace mnemo::cli
