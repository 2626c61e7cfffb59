#include "text/base64.h"

#include <cstdint>

#include "base/error.h"

namespace mnemo::text {

std::string from_base64(std::string_view text, const std::string& where) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kDigits.find(text[i]);
    base::require(digit != std::string_view::npos, "{}: expected Base64, found 0x{:02X} at byte {}", where,
                  static_cast<unsigned char>(text[i]), i);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

}  // namespace mnemo::text
