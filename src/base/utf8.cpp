#include "base/utf8.h"

#include "base/error.h"

namespace mnemo::base {

std::pair<unsigned char, unsigned char> second_byte_range(unsigned char first) {
  // Excludes overlong forms, surrogates and code points above U+10FFFF.
  switch (first) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

Utf8Character front_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {0, -1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const auto [low, high] = second_byte_range(byte(0));
  char32_t code_point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0, 0};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {0, -static_cast<int>(i)};
    code_point = (code_point << 6) | (byte(i) & 0x3F);
  }
  return {code_point, static_cast<int>(length)};
}

void append_character(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  ensure(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF), "U+{:04X} is not a character",
         static_cast<uint32_t>(code_point));
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string take_valid_utf8(std::string& text, bool at_end) {
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const int length = front_character(rest).length;
    if (length == 0 && !at_end) break;
    const size_t used = length > 0   ? static_cast<size_t>(length)
                        : length < 0 ? static_cast<size_t>(-length)
                                     : rest.size();
    out += length > 0 ? rest.substr(0, used) : kReplacement;
    rest.remove_prefix(used);
  }
  text.erase(0, text.size() - rest.size());
  return out;
}

}  // namespace mnemo::base
