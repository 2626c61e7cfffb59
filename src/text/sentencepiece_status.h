#pragma once

#include <sentencepiece_processor.h>

#include <string>

namespace mnemo::text {

/// Throws InputError that names `where` and has SentencePiece's message, without places in its sources.
void require_ok(const sentencepiece::util::Status& status, const std::string& where);

}  // namespace mnemo::text
