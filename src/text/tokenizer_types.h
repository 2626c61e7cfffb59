#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

/// The vocabulary entry for everything that has no other entry.
inline constexpr std::string_view kUnknownEntry = "<unk>";

// Used by Tokenizer::load, one function per type. They throw InputError naming `where`.
std::shared_ptr<const Tokenizer> character_tokenizer_from(EntryList entries, const std::string& where);
std::shared_ptr<const Tokenizer> word_tokenizer_from(EntryList entries, const std::string& where);

}  // namespace mnemo::text
