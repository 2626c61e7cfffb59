#pragma once

#include <memory>
#include <string_view>

#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/vocabulary_file.h"

namespace mnemo::data {

/// The vocabulary's entry for what it has no other entry for.
inline constexpr std::string_view kUnknownEntry = "<unk>";

// What Tokenizer::load makes of a vocabulary file, one function a type. They throw InputError naming `where`.
std::shared_ptr<const Tokenizer> character_tokenizer_from(EntryList entries, const std::string& where);
std::shared_ptr<const Tokenizer> word_tokenizer_from(EntryList entries, const std::string& where);

}  // namespace mnemo::data
