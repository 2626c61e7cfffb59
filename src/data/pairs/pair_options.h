#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/pairs/pair_batches.h"
#include "data/pairs/pair_text.h"
#include "data/pairs/pair_vocabulary.h"

namespace mnemo::data {

/// The `[data]` table of a translation recipe.
struct PairOptions : PairTextOptions {
  enum class Unit { characters, words, unigram, bpe } unit = Unit::words;
  std::string tokenizer = {};
  std::string target_tokenizer = {};
  std::string source_prefix = {};
  bool joint = true;
  int64_t min_count = 1;
  int64_t max_vocabulary = 0;
  int64_t max_length = 256;
  double max_ratio = 0;
  int64_t batch_tokens = 4096;
  int64_t window = 1;
  int64_t stride = 1;
  std::string separator;
  enum class Reset { pairs, documents } reset = Reset::pairs;
  PairLayout::Padding padding = PairLayout::Padding::right;
  template <class V>
  void visit(V&& v) {
    PairTextOptions::visit(v);
    v("unit", unit,
      "what a token is: a Unicode character, a word between blanks, or a subword unit of SentencePiece, learned from "
      "the training pairs",
      base::one_of("characters", "words", "unigram", "bpe"));
    v("tokenizer", tokenizer,
      "folder of a tokenizer, used for both sides instead of `unit`, with its own ids: a published model's (T5, "
      "Marian), or one made by `mnemo data tokenizer`; empty: vocabularies made from the pairs");
    v("target_tokenizer", target_tokenizer,
      "folder of another tokenizer for the target; `tokenizer` is then the source's, and the ids of both begin after "
      "the model's own special tokens");
    v("source_prefix", source_prefix, "text in front of every source (T5: \"translate English to German: \")");
    v("joint", joint, "one vocabulary for both sides; false: one for each");
    v("min_count", min_count, "units that occur less often than this become <unk>", base::at_least(1));
    v("max_vocabulary", max_vocabulary,
      "size of the vocabulary: with unigram and bpe exactly, otherwise at most; 0: no limit", base::at_least(0));
    v("max_length", max_length, "training pairs with a longer side, in tokens, are left out and counted",
      base::range(1, 1 << 20));
    v("max_ratio", max_ratio,
      "training pairs whose sides differ in tokens by more than this factor are left out and counted; 0: none are");
    v("batch_tokens", batch_tokens,
      "tokens of a batch: rows times the longest side of its pairs, which are of similar length; train.batch_size is "
      "the maximum number of rows",
      base::range(1, 1 << 24));
    v("window", window, "documents: sentences that are translated together", base::range(1, 1 << 10));
    v("stride", stride, "documents: sentences from one window to the next", base::range(1, 1 << 10));
    v("separator", separator,
      "documents: a word that separates the sentences of a window and occurs in none of them; BLEU and chrF then score "
      "the last sentence of each window. Empty: none, and whole windows are scored");
    v("reset", reset,
      "where memory is reset: pairs: at every pair; documents: only between documents. Memory is then carried from "
      "pair to pair, each row of a batch reads documents in order, and batches have train.batch_size rows of any "
      "length",
      base::one_of("pairs", "documents"));
    v("padding", padding, "the side of a batch's rows that is padded", base::one_of("right", "left"));
  }
  void validate(const base::Where& where) const;
  /// Whether both sides have the same vocabulary.
  bool one_vocabulary() const { return joint && target_tokenizer.empty(); }
  /// Whether a token is a subword unit of SentencePiece.
  bool subwords() const { return unit == Unit::unigram || unit == Unit::bpe; }
  /// The unit as recipes write it.
  std::string unit_name() const;
};

/// Sentences of one part as tokens, and the pairs that were left out.
struct PairPart {
  std::vector<PairSample> samples;
  std::vector<TextPair> texts;  ///< one per sample
  LeftOut empty = {}, too_long = {}, unequal = {};

  int64_t left_out() const { return empty.count + too_long.count + unequal.count; }
  /// A hash of all tokens and of where documents begin.
  uint64_t fingerprint() const;
  /// "3 with an empty side (a.tsv:1, a.tsv:7, a.tsv:9), 2 with ...", reasons without a pair left out.
  std::string why_left_out(const PairOptions& options) const;
};

/// Pairs ready for training. Vocabularies are built from the training part only.
struct PairCorpus : PairVocabularies {
  PairPart train, valid, test;
  const PairPart& part(Part part) const;
};

/// Reads and encodes pairs. vocabularies: those of a trained model; without a source: the data's own. Throws InputError
/// as read_pairs(), and if all training pairs are left out.
PairCorpus load_pairs(const PairOptions& options, const PairVocabularies& vocabularies = {});

/// All pairs of columns of a file or folder as the training part, whatever their length, in these vocabularies. What
/// `options` say of files is ignored. Throws InputError as read_pairs(), and if no pair has words on both sides.
PairCorpus read_pair_set(PairOptions options, const std::string& path, const PairVocabularies& vocabularies);

/// The files of the vocabularies for a model folder. one_table: the model has one table for both sides; otherwise its
/// folder has files of both sides, equal ones where they have one vocabulary.
text::Files vocabulary_files(const PairVocabularies& vocabularies, bool one_table);
/// The files of both sides that decide how texts become tokens (Tokenizer::defining_files()).
text::Files defining_files(const PairVocabularies& vocabularies);
/// Reads vocabulary_files() back; `where` names the folder in errors. Without files of the target, both sides share the
/// source's vocabulary.
PairVocabularies read_vocabularies(const text::Files& files, const std::string& where);

/// Prefixes of the names of their files.
inline constexpr const char* kSourceFiles = "source.";
inline constexpr const char* kTargetFiles = "target.";

}  // namespace mnemo::data
