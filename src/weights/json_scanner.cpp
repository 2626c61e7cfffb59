#include "weights/json_scanner.h"

#include <fmt/format.h>

namespace mnemo::weights {

int JsonScanner::byte() {
  if (at_ >= end_) return -1;
  if (at_ < window_at_ || at_ - window_at_ >= window_.size()) {
    window_ = source_.window(at_);
    window_at_ = at_;
  }
  return static_cast<unsigned char>(window_[at_ - window_at_]);
}

void JsonScanner::skip_space() {
  for (int c = byte(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = byte()) ++at_;
}

char JsonScanner::peek() {
  skip_space();
  const int c = byte();
  return c < 0 ? '\0' : static_cast<char>(c);
}

bool JsonScanner::accept(char c) {
  if (peek() != c || byte() < 0) return false;
  ++at_;
  return true;
}

void JsonScanner::expect(char c, int rule, std::string_view what) {
  if (!accept(c)) unexpected(rule, what);
}

std::string JsonScanner::found() {
  skip_space();
  if (byte() < 0) return "the end of the header";
  std::string text;
  const uint64_t here = at_;
  for (int c = byte(); c >= 0 && text.size() < 24; c = byte()) {
    text.push_back(static_cast<char>(c));
    ++at_;
  }
  at_ = here;
  // A character cut in half would be shown as broken bytes.
  while (!text.empty() && base::first_invalid_utf8(text)) text.pop_back();
  return fmt::format("'{}'", base::printable(text, 40));
}

void JsonScanner::unexpected(int rule, std::string_view what) {
  const std::string next = found();
  broken_rule(file_, rule, "expected {} at byte {} of the header, found {}", what, offset(), next);
}

// The decoded length of the string whose opening quote has been consumed, or an upper bound if it has escapes. Does not
// move the position.
uint64_t JsonScanner::measure() {
  const uint64_t here = at_;
  uint64_t length = 0;
  for (;; ++at_, ++length) {
    const int c = byte();
    if (c < 0) broken_rule(file_, 6, "a string that starts at byte {} of the header does not end", here - begin_);
    if (c == '"') break;
    if (c < 0x20)
      broken_rule(file_, 6, "control character \\x{:02x} in a string at byte {} of the header", c, offset());
    if (c == '\\') {
      ++at_;
      const int kind = byte();
      // Six characters decode to at most three bytes (a surrogate pair of twelve to four).
      if (kind == 'u') {
        at_ += 4;
        length += 2;
      }
      if (kind < 0) --at_;
    }
  }
  at_ = here;
  return length;
}

uint32_t JsonScanner::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const int c = byte();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) unexpected(6, "four hexadecimal digits after \\u");
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

void JsonScanner::append_escape(std::string& out) {
  const int kind = byte();
  ++at_;
  switch (kind) {
    case '"':
      out += '"';
      return;
    case '\\':
      out += '\\';
      return;
    case '/':
      out += '/';
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      --at_;
      unexpected(6, "one of \"\\/bfnrtu after a backslash");
  }
  uint32_t code = hex4();
  if (code >= 0xD800 && code < 0xE000) {
    const uint32_t high = code;
    uint32_t low = 0;
    if (high < 0xDC00 && byte() == '\\') {
      ++at_;
      if (byte() == 'u') {
        ++at_;
        low = hex4();
      }
    }
    if (low < 0xDC00 || low >= 0xE000)
      broken_rule(file_, 6, "\\u{:04x} is half of a surrogate pair, before byte {} of the header", high, offset());
    code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }
  const auto put = [&out](uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string JsonScanner::string(uint64_t max_bytes, int rule, std::string_view what) {
  expect('"', rule, what);
  const uint64_t length = measure();
  if (length > max_bytes)
    over_cap(file_, "length", "{} of {} bytes at byte {} of the header, expected at most {}", what, length, offset(),
             max_bytes);
  std::string out;
  out.reserve(static_cast<size_t>(length));
  for (;;) {
    const int c = byte();
    // The file may change between measuring and reading, so the bound is checked again.
    if (c < 0 || out.size() > length)
      broken_rule(file_, 6, "a string ending at byte {} of the header changed while being read", offset());
    ++at_;
    if (c == '"') return out;
    if (c == '\\') {
      append_escape(out);
    } else {
      out += static_cast<char>(c);
    }
  }
}

uint64_t JsonScanner::integer(std::string_view what) {
  const char first = peek();
  if (first < '0' || first > '9') unexpected(7, what);
  const uint64_t start = offset();
  uint64_t value = 0;
  int digits = 0;
  for (int c = byte(); c >= '0' && c <= '9'; c = byte(), ++digits) {
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value)) {
      broken_rule(file_, 7, "{} at byte {} of the header does not fit 64 bits", what, start);
    }
    ++at_;
  }
  const int next = byte();
  if ((first == '0' && digits > 1) || next == '.' || next == 'e' || next == 'E') {
    broken_rule(file_, 7, "{} at byte {} of the header is no plain integer", what, start);
  }
  return value;
}

}  // namespace mnemo::weights
