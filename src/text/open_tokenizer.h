#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace mnemo::text {

struct OpenOptions {
  /// ids of fairseq's dict.txt, if there is one, instead of those of the vocabulary
  bool fairseq_ids = true;
  /// ALBERT's rule of the original code for pieces that end in digit and comma
  bool digit_commas = false;
};

/// The tokenizer of a model folder, by the files that are in it, first match first:
///   vocabulary.json                                          made by Mnemo from a text
///   source.spm + vocab.json [+ target.spm]                   Marian
///   spiece.model, spm.model or tokenizer.model               SentencePiece: T5, ALBERT, Llama, trained by Mnemo
///   tokenizer.json                                           Hugging Face: see tokenizer_from_json
///   vocab.txt, or one NAME-vocab.txt                         WordPiece: BERT
///   vocab.json + merges.txt, encoder.json + vocab.bpe, or gpt2-vocab.json + gpt2-merges.txt [+ dict.txt]
///                                                            byte-level BPE: GPT-2, RoBERTa, fairseq
/// tokenizer_config.json beside them may set lower case and accents of WordPiece and ALBERT; it and
/// special_tokens_map.json are saved with the tokenizer; chat templates are not. A file stands for its folder, and a
/// SentencePiece model (.model, .spm) for itself. Throws InputError naming the folder, the file and the rule.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder, const OpenOptions& options = {});

/// Whether the folder has a file that open_tokenizer reads a vocabulary from.
bool has_tokenizer(const std::string& folder);

/// Opens a tokenizer from the content of files by name; `where` names their folder in errors.
std::shared_ptr<const Tokenizer> open_tokenizer_files(const Files& files, const std::string& where,
                                                      const OpenOptions& options = {});

}  // namespace mnemo::text
