#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "text/tokenizer.h"

namespace mnemo::data {

/// How tokens are hidden for masked language modelling (Devlin et al. 2019, section 3.1).
struct Masking {
  double fraction = 0.15;              ///< of the tokens, at least one, that are to be predicted
  double masked = 0.8;                 ///< of these: become the mask
  double random = 0.1;                 ///< of these: become any token of the vocabulary; the rest stay as they are
  int64_t mask_token = 0;              ///< id of the mask
  int64_t vocabulary = 0;              ///< number of tokens
  int64_t separator = -1;              ///< id of a token that stays and does not count; -1: none
  std::vector<bool> begins_word = {};  ///< by token, see word_starts; empty: tokens are chosen one by one
};

/// Hides tokens of a text: `targets` [as many] gets the tokens to predict, base::kIgnoreTarget elsewhere.
/// round(fraction n) of the n tokens are chosen, separators not counted, at least one. With whole words, words are
/// chosen as long as they fit into this number, and the first one drawn in any case.
void mask_tokens(std::span<int64_t> tokens, std::span<int64_t> targets, const Masking& masking, base::Random& random);

/// Whether each token of the vocabulary begins a word: after another text it begins with white space, or it is
/// punctuation alone.
std::vector<bool> word_starts(const text::Tokenizer& tokenizer);

}  // namespace mnemo::data
