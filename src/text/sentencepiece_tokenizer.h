#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/pretrained.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

struct SentencePieceOptions {
  // ALBERT's preprocessing before SentencePiece.
  bool straight_quotes = false;  ///< `` and '' become ", white space a space
  bool strip_accents = false;    ///< decompose (NFKD) and drop characters of a combining class other than 0
  bool lowercase = false;
  /// ALBERT's rule of the original code: a piece that ends in digit and comma is encoded again without the comma.
  bool digit_commas = false;
  /// Hugging Face's Metaspace: the space in front of a text is put only where the text does not begin with one.
  bool space_where_missing = false;
  bool first_space_once = false;  ///< no space in front of a text behind an added token
  /// transformers' Llama: not the model's own rules of characters and spaces; space_where_missing, or none.
  bool llama = false;
  bool no_first_space = false;  ///< with `llama`
  /// Marian: ids of pieces (vocab.json), and the model of the language that ids are decoded to, if not the same. A text
  /// may begin with one of the pieces >>CODE<<, the language to translate to; another code is an InputError.
  std::optional<EntryList> pieces_by_id = {};
  std::string target = {};
};

/// A model of SentencePiece (Kudo and Richardson 2018), unigram or BPE; `file` is spiece.model, tokenizer.model or
/// source.spm; `added` may lie in the vocabulary or go on from its size. Decoding is the library's, encoding
/// PieceEncoder's. Throws InputError that names `where` for a broken file.
std::shared_ptr<const Tokenizer> make_sentencepiece(std::string_view file, SentencePieceOptions options,
                                                    PretrainedParts parts, const std::string& where,
                                                    const AddedTokens& added = {});

/// Trains a model on the lines of the texts together: subword units with `vocab_size` pieces, of which <unk>, <s>, </s>
/// and <pad> are the first. Training is deterministic. Throws InputError for invalid UTF-8 with file and byte,
/// for a text without lines, and for a size that the text does not allow, with SentencePiece's own words.
///   type: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016)
std::shared_ptr<const Tokenizer> train_sentencepiece(std::string_view type, const std::vector<TextSource>& texts,
                                                     int64_t vocab_size);

/// The file that train_sentencepiece's tokenizers save.
inline constexpr const char* kTrainedModelFile = "tokenizer.model";

}  // namespace mnemo::text
