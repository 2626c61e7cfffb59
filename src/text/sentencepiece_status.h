#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace mnemo::text {

/// If the status says that a vocabulary is larger than a text gives: the most pieces that it gives.
std::optional<int64_t> most_pieces(const sentencepiece::util::Status& status);

/// Throws InputError that names `where` and has SentencePiece's message, without places in its sources.
void require_ok(const sentencepiece::util::Status& status, const std::string& where);

}  // namespace mnemo::text
