#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/pretrained.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

/// BERT's WordPiece (Devlin et al. 2019; Wu et al. 2016).
struct WordPieceOptions {
  bool lowercase = true;
  bool strip_accents = true;  ///< decompose (NFD) and drop nonspacing marks
  bool split_cjk = true;      ///< every ideograph is a word
  bool clean = true;          ///< drop control characters; all white space becomes a space
  std::string unknown = "[UNK]";
  std::string prefix = "##";            ///< of a piece that continues a word
  int64_t max_word_characters = 100;    ///< a longer word is unknown
  std::vector<int64_t> no_pieces = {};  ///< ids of tokens that no word is made of: added beside the vocabulary
};

/// `tokens` by id, of equal ones the last; `added` may lie among them or go on from their number. A word is the longest
/// known piece from the left, and so on with the prefix; if there is none, the whole word is unknown. Throws InputError
/// that names `where` if the unknown token is missing.
std::shared_ptr<const Tokenizer> make_word_piece(EntryList tokens, WordPieceOptions options, PretrainedParts parts,
                                                 const std::string& where, const AddedTokens& added);

}  // namespace mnemo::text
