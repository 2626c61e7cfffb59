#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/pretrained.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

/// The tokens of a byte-pair encoding as published: by id, and pairs of tokens in order of their rank.
struct BpeVocabulary {
  EntryList tokens;       ///< added ones included
  EntryList left, right;  ///< the two tokens of each merge
};

struct BpeOptions {
  enum class FirstSpace { never, where_missing, always };

  bool bytes = true;     ///< tokens are bytes written as characters (GPT-2); otherwise they are characters
  bool compose = false;  ///< NFC first
  /// A text is split by these expressions, one after another; merges do not cross the borders. Empty: not split.
  std::vector<std::string> patterns = {};
  FirstSpace first_space = FirstSpace::never;  ///< a space in front of a text
  /// Not in front of a text behind an added token; with `bytes` or `always` it stands there too.
  bool first_space_once = true;
  std::string space_mark = {};  ///< without `bytes`: a space inside a token (U+2581); empty: a space
  bool byte_fallback = false;   ///< without `bytes`: an unknown character is its bytes, the tokens "<0x41>"
  bool fuse_unknown = false;    ///< several unknown characters are one unknown token
  bool ignore_merges = false;   ///< a piece that is a token is that token, whether merges lead to it or not
  std::string unknown = {};     ///< the unknown token; empty: none
};

/// Other ids than those of the vocabulary: fairseq's dict.txt, which numbers the tokens by frequency.
struct ModelIds {
  std::vector<std::string> special;  ///< the texts of ids 0, 1, ...
  int32_t unknown = 0;               ///< the id of tokens without one
  std::vector<int32_t> of_token;     ///< by id of the vocabulary; -1: none
  int64_t size = 0;
};

/// `added` may lie in the vocabulary or go on from its size. Throws InputError that names `where`: a token or a merge
/// that appears twice, a merge of tokens that are not there, a byte without a token, an unsupported combination of
/// options.
std::shared_ptr<const Tokenizer> make_bpe(BpeVocabulary vocabulary, AddedTokens added, BpeOptions options,
                                          std::optional<ModelIds> model_ids, PretrainedParts parts,
                                          const std::string& where);

}  // namespace mnemo::text
