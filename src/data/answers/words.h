#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mnemo::data {

/// Calls take(word, offset) for each word between the spaces of a text.
template <class Take>
void each_word(std::string_view text, Take take) {
  for (size_t at = text.find_first_not_of(' '); at < text.size(); at = text.find_first_not_of(' ', at)) {
    const std::string_view word = text.substr(at, text.find(' ', at) - at);
    take(word, static_cast<int64_t>(at));
    at += word.size();
  }
}

}  // namespace mnemo::data
