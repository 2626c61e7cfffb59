#include "base/base64.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace mnemo::base {

namespace {

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kBase64Digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text, const std::string& where) {
  text = text.substr(0, text.find_last_not_of("=\r\n") + 1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' || text[i] == '\n') continue;
    const size_t digit = kBase64Digits.find(text[i]);
    require(digit != std::string_view::npos, "{}: expected Base64, found 0x{:02X} at byte {}", where,
            static_cast<unsigned char>(text[i]), i);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

}  // namespace mnemo::base
