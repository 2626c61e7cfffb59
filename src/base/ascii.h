#pragma once

#include <string>
#include <string_view>

namespace mnemo::base {

/// A text with the letters A to Z in lower case, whatever the locale: for names and endings that are told without case.
inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// A text without those characters at its ends.
inline std::string_view trimmed(std::string_view text, std::string_view characters) {
  const size_t first = text.find_first_not_of(characters);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(characters) + 1 - first);
}

}  // namespace mnemo::base
