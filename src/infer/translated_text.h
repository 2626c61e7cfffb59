#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/alignment.h"

namespace mnemo::infer {

/// A hypothesis as text.
struct TranslatedText {
  std::string text;
  double sum = 0.0;          ///< of log probabilities (natural logarithm), end included
  double score = 0.0;        ///< sum / n^length_penalty
  int64_t tokens = 0;        ///< n, end included
  WordLinks alignment = {};  ///< if wanted
};

/// The hypotheses of several sentences as texts, for another process; unpack_translations() gives them back, bit for
/// bit.
std::vector<std::string> pack_translations(const std::vector<std::vector<TranslatedText>>& sentences);
std::vector<std::vector<TranslatedText>> unpack_translations(const std::vector<std::string>& packed);

}  // namespace mnemo::infer
