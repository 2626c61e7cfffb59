#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "text/bpe_tokenizer.h"
#include "text/pretrained.h"
#include "text/vocabulary_file.h"

namespace mnemo::text {

struct TokenizerSettings;

/// A tokenizer.json with its long lists apart, which are read in memory proportional to their text.
struct TokenizerJson {
  base::Node rest = {};             ///< everything else
  EntryList tokens = {};            ///< the keys of model.vocab, or the first items of its pairs, in the file's order
  std::vector<int64_t> ids = {};    ///< the values of model.vocab
  std::vector<double> scores = {};  ///< the second items of its pairs (Unigram)
  EntryList left = {}, right = {};  ///< model.merges, as "a b" or ["a", "b"]
  AddedTokens added = {};           ///< added_tokens
};

/// Reads the JSON of a tokenizer.json. Throws InputError that names `where` for broken or deeply nested JSON.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

/// Reads a vocab.json, {"token": id, ...}, into `tokens` and `ids`. Errors as above.
TokenizerJson parse_vocab_json(std::string_view text, const std::string& where);

/// The tokens by id. Throws InputError that names `where` unless the ids are 0 to n - 1, each once.
EntryList tokens_by_id(const EntryList& tokens, const std::vector<int64_t>& ids, const std::string& where);

/// How many merges there can be: ways to split each of the tokens in two.
int64_t count_splits(const EntryList& tokens);

/// The lines of a merges.txt, "a b", appended to left and right. Throws InputError that names `where` and the line,
/// also for more merges than the tokens have splits.
void read_merges(std::string_view text, const std::string& where, const EntryList& tokens, EntryList& left,
                 EntryList& right);

/// The tokenizer of a tokenizer.json (Hugging Face): models WordPiece, BPE and Unigram with the normalizers,
/// pre-tokenizers, post-processors and decoders of BERT, GPT-2, RoBERTa, T5, Llama, Qwen2 and GPT-NeoX. Any other kind
/// is an InputError that names it. `settings` of the files beside it in `folder` add tokens, name the special ones, and
/// count instead of the file where the class that they name sets itself up by them, as in transformers 5.
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text, const TokenizerSettings& settings,
                                                     PretrainedParts parts, const std::string& where,
                                                     const std::string& folder);

}  // namespace mnemo::text
