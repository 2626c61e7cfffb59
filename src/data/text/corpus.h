#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/part.h"
#include "data/text/documents.h"
#include "data/text/token_store.h"
#include "text/tokenizer.h"

namespace mnemo::data {

/// The `[data]` table of a language-model recipe: the text, its units and its parts.
struct TextOptions {
  std::string train;
  std::string valid;
  std::string test;
  double valid_fraction = 0.05;
  double test_fraction = 0.05;
  enum class Unit { bytes, characters, words } unit = Unit::characters;
  std::string tokenizer = {};
  int64_t min_count = 1;
  int64_t max_vocabulary = 0;
  DocumentRule::Kind document_separator = DocumentRule::Kind::none;
  std::string separator_line;
  enum class Reset { documents, segments } reset = Reset::documents;
  std::string json_key = {};
  bool pack = false;

  template <class V>
  void visit(V&& v) {
    v("train", train,
      "training text: a file, a folder of .txt files or a pattern (\"texts/*.txt.gz\"); .gz and .zst are unpacked");
    v("valid", valid, "validation text file; empty: cut off valid_fraction of the training text");
    v("test", test, "test text file; empty: cut off test_fraction of the training text");
    v("valid_fraction", valid_fraction, "fraction of the training text used for validation if `valid` is empty",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction,
      "fraction of the training text, from its end, used for testing if `test` is empty", base::half_open_range(0, 1));
    v("unit", unit, "what a token is: a byte, a Unicode character, or a WikiText word",
      base::one_of("bytes", "characters", "words"));
    v("tokenizer", tokenizer,
      "folder of a pretrained model's tokenizer (tokenizer.json, vocab.json + merges.txt, ..), used instead of `unit`; "
      "empty: a vocabulary of the text's own");
    v("min_count", min_count, "characters and words that occur less often than this become <unk>", base::at_least(1));
    v("max_vocabulary", max_vocabulary, "maximum vocabulary size for characters or words; 0: no limit",
      base::at_least(0));
    v("document_separator", document_separator,
      "what separates documents: nothing, blank lines, WikiText's \" = Title = \" lines, or `separator_line`",
      base::one_of("none", "blank_line", "heading", "line"));
    v("separator_line", separator_line, "the line that ends a document, with document_separator = \"line\"");
    v("reset", reset,
      "when memory is reset, in training and evaluation: documents: only between documents; segments: at every "
      "segment, so that segments are independent",
      base::one_of("documents", "segments"));
    v("json_key", json_key, "the files are JSON lines, and the text is that of this key; empty: they are plain text");
    v("pack", pack,
      "pack documents one after the other, with the tokenizer's end token between them, instead of padding; attention "
      "and memory continue across them");
  }
  void validate(const base::Where& where) const;

  /// Whether memory is reset at every segment, so that segments are independent.
  bool resets_segments() const { return reset == Reset::segments; }
  /// The tokenizer of that folder; null if there is none. Throws InputError naming the file that cannot be read.
  std::shared_ptr<const text::Tokenizer> pretrained() const;
  /// "bytes", "characters" or "words", or another type of a published model's tokenizer, which is not opened for it.
  std::string token_type() const;
  /// Whether texts may hold any bytes: no tokenizer reads them as characters.
  bool any_bytes() const { return unit == Unit::bytes && tokenizer.empty(); }
  /// A usual vocabulary size of such texts, where there is no text to count: 256 bytes, 128 characters or 32,768 words,
  /// at most max_vocabulary.
  int64_t usual_vocabulary() const;
  /// With `pack` the token that separates documents, otherwise -1. Throws InputError if the tokenizer has none.
  int32_t token_between(const text::Tokenizer& of) const;
  DocumentRule document_rule() const { return DocumentRule::of(document_separator, separator_line); }
  /// The unit as recipes write it, which is also Tokenizer::type() of its tokenizer.
  std::string unit_name() const;
};

/// The byte ranges of the three parts; a missing part has no value.
struct TextSplit {
  text::TextSource train;
  std::optional<text::TextSource> valid;
  std::optional<text::TextSource> test;
  std::vector<std::string> notes;  ///< notes for the user about the cuts, one line each
};

/// Finds the byte range of each part. Parts given by a fraction are taken from the end of the training file, validation
/// before test. A cut moves to the start of the next line, or of the next document if the text has documents, so no
/// document is split. Where no line starts before the part's end, the cut stays inside its line, between characters,
/// with a note. Throws InputError for files that cannot be read, for a cut with no document after it, and for a text
/// with fewer characters than parts.
TextSplit split_text(const TextOptions& options);

/// Reads a text in chunks into tokens. between: a token that separates its documents, which are then one text; -1:
/// none. Throws InputError with file and byte offset for invalid UTF-8.
std::shared_ptr<const TokenStore> encode_text(const text::Tokenizer& tokenizer, const text::TextSource& text,
                                              const DocumentRule& rule = {}, int32_t between = -1);

/// A text ready for training. The vocabulary is built from the training part only.
struct Corpus {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const TokenStore> train, valid, test;  ///< valid and test may be null

  const std::shared_ptr<const TokenStore>& part(Part part) const {
    return part == Part::train ? train : part == Part::valid ? valid : test;
  }
  int64_t num_bytes() const;
};

/// Splits and encodes a text. With `tokenizer` (that of a model), its vocabulary is used and `unit` must match.
Corpus load_corpus(const TextOptions& options, std::shared_ptr<const text::Tokenizer> tokenizer = nullptr);

}  // namespace mnemo::data
