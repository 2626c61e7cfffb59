#include "data/text/masking.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/printable.h"
#include "base/unicode.h"
#include "data/draws.h"

namespace mnemo::data {
namespace {

/// The words of a text, [begin, end) of its tokens; without begins_word each token alone. Separators are in none.
std::vector<std::pair<size_t, size_t>> words_of(std::span<const int64_t> tokens, const Masking& masking) {
  std::vector<std::pair<size_t, size_t>> words;
  bool begins = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool separates = tokens[i] == masking.separator;
    if (!separates) {
      if (begins || masking.begins_word.empty() || masking.begins_word[static_cast<size_t>(tokens[i])])
        words.emplace_back(i, i);
      words.back().second = i + 1;
    }
    begins = separates;
  }
  return words;
}

}  // namespace

void mask_tokens(std::span<int64_t> tokens, std::span<int64_t> targets, const Masking& masking, base::Random& random) {
  base::ensure(!tokens.empty() && targets.size() == tokens.size(), "{} targets of {} tokens", targets.size(),
               tokens.size());
  std::fill(targets.begin(), targets.end(), base::kIgnoreTarget);
  std::vector<std::pair<size_t, size_t>> words = words_of(tokens, masking);
  random.shuffle(words);
  const auto count = static_cast<double>(tokens.size()) -
                     static_cast<double>(std::count(tokens.begin(), tokens.end(), masking.separator));
  const size_t wanted = std::max<size_t>(1, static_cast<size_t>(std::llround(masking.fraction * count)));
  size_t chosen = 0;
  for (const auto& [begin, end] : words) {
    if (chosen >= wanted) break;
    if (chosen > 0 && chosen + (end - begin) > wanted) continue;
    chosen += end - begin;
    for (size_t i = begin; i < end; ++i) {
      targets[i] = tokens[i];
      const double draw = draw_uniform(random);
      if (draw < masking.masked) {
        tokens[i] = masking.mask_token;
      } else if (draw < masking.masked + masking.random) {
        tokens[i] = static_cast<int64_t>(random.below(static_cast<uint64_t>(masking.vocabulary)));
      }
    }
  }
}

std::vector<bool> word_starts(const text::Tokenizer& tokenizer) {
  const std::string before = "x";
  std::vector<bool> starts;
  for (int64_t id = 0; id < tokenizer.size(); ++id) {
    std::string text = before;
    tokenizer.append(text, id);
    text.erase(0, before.size());
    if (base::first_invalid_utf8(text)) {  // bytes of a character: part of a word unless a space comes first
      starts.push_back(text.starts_with(' '));
      continue;
    }
    const std::u32string points = base::code_points(text, "token");
    const bool punctuation = !points.empty() && std::all_of(points.begin(), points.end(), [](char32_t c) {
      return base::category(c).starts_with('P');
    });
    starts.push_back(punctuation || (!points.empty() && base::is_space(points.front())));
  }
  return starts;
}

}  // namespace mnemo::data
