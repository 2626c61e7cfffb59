#include "infer/translated_text.h"

#include <fmt/format.h>

#include <bit>
#include <sstream>

namespace mnemo::infer {

std::vector<std::string> pack_translations(const std::vector<std::vector<TranslatedText>>& sentences) {
  std::vector<std::string> packed;
  for (const std::vector<TranslatedText>& texts : sentences) {
    packed.push_back(fmt::format("{}", texts.size()));
    for (const TranslatedText& text : texts) {
      packed.push_back(text.text);
      std::string& numbers = packed.emplace_back(
          fmt::format("{} {} {}", std::bit_cast<int64_t>(text.sum), std::bit_cast<int64_t>(text.score), text.tokens));
      for (const auto& [source, target] : text.alignment) numbers += fmt::format(" {} {}", source, target);
    }
  }
  return packed;
}

std::vector<std::vector<TranslatedText>> unpack_translations(const std::vector<std::string>& packed) {
  std::vector<std::vector<TranslatedText>> sentences;
  for (size_t at = 0; at < packed.size();) {
    const size_t count = std::stoull(packed[at++]);
    std::vector<TranslatedText>& texts = sentences.emplace_back();
    for (size_t k = 0; k < count; ++k, at += 2) {
      TranslatedText& text = texts.emplace_back(TranslatedText{.text = packed[at]});
      std::istringstream numbers(packed[at + 1]);
      int64_t sum = 0, score = 0, source = 0, target = 0;
      numbers >> sum >> score >> text.tokens;
      text.sum = std::bit_cast<double>(sum);
      text.score = std::bit_cast<double>(score);
      while (numbers >> source >> target) text.alignment.emplace_back(source, target);
    }
  }
  return sentences;
}

}  // namespace mnemo::infer
