#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace mnemo::text {

/// The types that train_tokenizer() knows: those of make_tokenizer(), then "unigram" and "bpe".
const std::vector<std::string_view>& tokenizer_types();

/// Makes a tokenizer of the texts together, by type. Throws InputError for an unknown type, and as make_tokenizer() and
/// train_sentencepiece() do.
///   vocab_size: unigram and bpe: exactly so many; characters and words: at most, 0 for all; bytes: 0
std::shared_ptr<const Tokenizer> train_tokenizer(std::string_view type, const std::vector<TextSource>& texts,
                                                 int64_t vocab_size);

}  // namespace mnemo::text
