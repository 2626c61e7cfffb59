#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary_file.h"

namespace mnemo::text {

/// The kinds of pieces, with SentencePiece's numbers.
enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// Content of a SentencePiece model file (a ModelProto).
struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2 };

  Kind kind = Kind::unigram;
  EntryList pieces = {};
  std::vector<float> scores = {};
  std::vector<PieceType> types = {};
  std::string normaliser = {};       ///< precompiled_charsmap: compiled rules of characters
  bool space_first = true;           ///< add_dummy_prefix
  bool space_where_missing = false;  ///< in no file: the first space only where the text does not begin with one
  bool single_spaces = true;         ///< remove_extra_whitespaces
  bool marks_spaces = true;          ///< escape_whitespaces
  bool space_last = false;           ///< treat_whitespace_as_suffix
  bool byte_fallback = false;
};

/// Reads a model file. SentencePiece trusts its files in places, so this checks what it does not: that every piece is
/// UTF-8 with a finite score, and that the compiled rules point nowhere outside themselves. Takes memory in proportion
/// to the file. Throws InputError that names `where` and the rule.
SentencePieceModel read_sentencepiece_model(std::string_view file, const std::string& where);

/// The file of a model.
std::string write_sentencepiece_model(const SentencePieceModel& model);

}  // namespace mnemo::text
