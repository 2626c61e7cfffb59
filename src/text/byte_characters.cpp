#include "text/byte_characters.h"

#include <array>

#include "base/utf8.h"

namespace mnemo::text {
namespace {

struct Tables {
  std::array<char32_t, 256> character;
  std::array<int, 512> byte;

  Tables() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

const Tables& tables() {
  static const Tables made;
  return made;
}

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  std::string out;
  while (!characters.empty()) {
    const base::Utf8Character found = base::front_character(characters);
    if (found.length <= 0 || found.code_point >= tables().byte.size() || tables().byte[found.code_point] < 0) return {};
    out.push_back(static_cast<char>(tables().byte[found.code_point]));
    characters.remove_prefix(static_cast<size_t>(found.length));
  }
  return out;
}

std::string characters_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) base::append_character(out, tables().character[static_cast<unsigned char>(c)]);
  return out;
}

}  // namespace mnemo::text
