#include "base/printable.h"

#include <fmt/format.h>

#include <tuple>

#include "base/utf8.h"

namespace mnemo::base {

std::optional<size_t> Utf8Checker::feed(std::string_view piece) {
  if (bad_) return bad_;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    if (open_ > 0) {
      if (byte < low_ || byte > high_) return bad_ = start_;
      low_ = 0x80;
      high_ = 0xBF;
      --open_;
    } else if (byte >= 0x80) {
      if (byte < 0xC2 || byte > 0xF4) return bad_ = seen_;
      start_ = seen_;
      open_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      std::tie(low_, high_) = second_byte_range(byte);
    }
    ++seen_;
  }
  return std::nullopt;
}

std::optional<size_t> Utf8Checker::finish() const {
  if (bad_) return bad_;
  if (open_ > 0) return start_;
  return std::nullopt;
}

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  Utf8Checker checker;
  if (const auto bad = checker.feed(text)) return bad;
  return checker.finish();
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t i = 0;
  for (; i < text.size() && out.size() < max_bytes;) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte < 0x20 || byte == 0x7F) {
        out += fmt::format("\\x{:02x}", byte);
      } else {
        out += text[i];
      }
      ++i;
      continue;
    }
    const size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    const std::string_view sequence = text.substr(i, length);
    // U+0080..U+009F are control characters too: some terminals obey them.
    const bool control = sequence.size() == 2 && byte == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
    if (sequence.size() == length && !first_invalid_utf8(sequence) && !control) {
      out += sequence;
      i += length;
    } else {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    }
  }
  if (i < text.size()) out += "...";
  return out;
}

}  // namespace mnemo::base
