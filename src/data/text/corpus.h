#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/text/documents.h"
#include "data/text/token_store.h"
#include "data/tokenizers/tokenizer.h"

namespace mnemo::data {

/// Which text, in which units, split how: the `[data]` table of a language-model recipe.
struct TextOptions {
  std::string train;
  std::string valid;
  std::string test;
  double valid_fraction = 0.05;
  double test_fraction = 0.05;
  std::string unit = "characters";
  int64_t min_count = 1;
  int64_t max_vocabulary = 0;
  std::string document_separator = "none";
  std::string separator_line;
  std::string reset = "documents";

  template <class V>
  void visit(V&& v) {
    v("train", train, "path of the training text");
    v("valid", valid, "path of the validation text; empty: the part valid_fraction of the training text");
    v("test", test, "path of the test text; empty: the part test_fraction of the training text");
    v("valid_fraction", valid_fraction, "part of the training text cut off for validation when `valid` is empty",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction, "part cut off from the end of the training text for tests when `test` is empty",
      base::half_open_range(0, 1));
    v("unit", unit, "what a token is: any byte, a Unicode character, or a word of WikiText",
      base::one_of("bytes", "characters", "words"));
    v("min_count", min_count, "characters and words seen less often than this become <unk>", base::at_least(1));
    v("max_vocabulary", max_vocabulary, "most entries of a vocabulary of characters or words; 0: no limit",
      base::at_least(0));
    v("document_separator", document_separator,
      "where a document ends: nowhere, at blank lines, at WikiText's \" = Title = \" lines, or at `separator_line`",
      base::one_of("none", "blank_line", "heading", "line"));
    v("separator_line", separator_line, "the line that ends a document when document_separator = \"line\"");
    v("reset", reset,
      "where memory starts again, in training and in evaluation. documents: at their starts alone; segments: at every "
      "segment's start too, "
      "so that each stands alone",
      base::one_of("documents", "segments"));
  }
  void validate(const base::Where& where) const;

  /// Memory starts again with every segment: each stands alone.
  bool resets_segments() const { return reset == "segments"; }
  DocumentRule document_rule() const { return DocumentRule::parse(document_separator, separator_line); }
};

/// The byte ranges of the three parts; an absent part has no value.
struct TextSplit {
  TextSource train;
  std::optional<TextSource> valid;
  std::optional<TextSource> test;
};

/// Where each part lies. Parts cut off by a fraction are the end of the training file, validation before test; a cut
/// moves on to the next line's start, or to the next document's start where the text has documents, so no document lies
/// in two parts. Throws InputError for files that cannot be read and for a cut with no such place after it.
TextSplit split_text(const TextOptions& options);

/// Reads a text in chunks into tokens. Throws InputError with file and byte offset for invalid UTF-8.
std::shared_ptr<const TokenStore> encode_text(const Tokenizer& tokenizer, const TextSource& text,
                                              const DocumentRule& rule = {});

/// A text ready for training: the tokenizer's vocabulary comes from the training part alone.
struct Corpus {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenStore> train, valid, test;  ///< valid and test may be null

  int64_t num_bytes() const;
};

/// Splits and encodes. With `tokenizer` (a model's own) the vocabulary is that one and `unit` must agree with it.
Corpus load_corpus(const TextOptions& options, std::shared_ptr<const Tokenizer> tokenizer = nullptr);

}  // namespace mnemo::data
