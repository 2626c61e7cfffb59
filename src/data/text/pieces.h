#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/text/token_store.h"

namespace mnemo::data {

/// Tokens [begin, end) of one document.
struct TextPiece {
  int64_t begin = 0, end = 0;
};

/// The documents of a text in pieces of `length` tokens, the last of each perhaps shorter; pieces of fewer than `least`
/// are left out.
inline std::vector<TextPiece> pieces_of(const TokenStore& text, int64_t length, int64_t least = 1) {
  std::vector<TextPiece> pieces;
  for (int64_t i = 0; i < text.num_documents(); ++i) {
    const int64_t end = text.document_end(i);
    for (int64_t begin = text.document_begin(i); begin + least <= end; begin += length)
      pieces.push_back({begin, std::min(begin + length, end)});
  }
  return pieces;
}

}  // namespace mnemo::data
