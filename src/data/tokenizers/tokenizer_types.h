#pragma once

#include <memory>

#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/vocabulary_file.h"

namespace mnemo::data {

// What Tokenizer::load makes of a vocabulary file, one function a type. They throw InputError naming `where`.
std::shared_ptr<const Tokenizer> character_tokenizer_from(EntryList entries, const std::string& where);
std::shared_ptr<const Tokenizer> word_tokenizer_from(EntryList entries, const std::string& where);

}  // namespace mnemo::data
