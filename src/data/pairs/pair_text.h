#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "data/part.h"

namespace mnemo::data {

/// A line of UTF-8 without the blanks and tabs around it; empty if nothing but blanks of any script is left.
std::string_view words_in(std::string_view line);

/// Where the pairs of a translation recipe come from.
struct PairTextOptions {
  std::string train, train_target;
  std::string valid, valid_target;
  std::string test, test_target;
  double valid_fraction = 0.02;
  double test_fraction = 0.02;
  int64_t source_column = 1;
  int64_t target_column = 2;
  int64_t document_column = 0;
  bool header = false;
  std::string source_key = {}, target_key = {};
  template <class V>
  void visit(V&& v) {
    v("train", train,
      "training pairs: columns, tab-separated or of a .csv, JSON lines, or, with train_target, the source line by "
      "line; "
      "a folder: each file is a document");
    v("train_target", train_target,
      "the target of `train` line by line, a folder of files of the same names if `train` is one; empty: `train` has "
      "both in columns");
    v("valid", valid, "validation pairs, as `train`; empty: choose valid_fraction of the training pairs");
    v("valid_target", valid_target, "the target of `valid` line by line");
    v("test", test, "test pairs, as `train`; empty: choose test_fraction of the training pairs");
    v("test_target", test_target, "the target of `test` line by line");
    v("valid_fraction", valid_fraction,
      "fraction of the training pairs used for validation if `valid` is empty; pairs with the same source, or of the "
      "same document, stay together",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction, "fraction of the training pairs used for testing if `test` is empty",
      base::half_open_range(0, 1));
    v("source_column", source_column, "columns: number of the source's, from 1", base::range(1, 1 << 10));
    v("target_column", target_column, "columns: number of the target's", base::range(1, 1 << 10));
    v("document_column", document_column,
      "columns: number of the one that names the document; 0: pairs are independent", base::range(0, 1 << 10));
    v("header", header, "leave out the first line of every file: the names of the columns");
    v("source_key", source_key,
      "JSON lines (.jsonl, .ndjson): key of the source; \"translation.en\" is a key in an object; empty: known names "
      "(source and target, src and tgt, input and output, two languages)");
    v("target_key", target_key, "JSON lines: key of the target");
  }
  void validate(const base::Where& where) const;
  /// Whether pairs belong to documents: those of a column, or the files of a folder.
  bool has_documents() const;
};

/// A sentence and its translation. document: number of its document, in order of appearance; -1: none.
struct TextPair {
  std::string source, target;
  int64_t document = -1;
  std::shared_ptr<const std::string> file = {};  ///< file of its source
  int64_t line = 0;
  /// "FILE:LINE".
  std::string place() const;
};

/// Pairs that are left out for one reason: how many, and the first, "FILE:LINE" without the file's folder.
struct LeftOut {
  static constexpr int64_t kNamed = 3;
  int64_t count = 0;
  std::vector<std::string> places = {};
  void add(const TextPair& pair);
};

/// The pairs of one part, and those with an empty side.
struct TextPairs {
  std::vector<TextPair> pairs;
  LeftOut empty = {};
};

/// The parts of the data.
struct PairSets {
  TextPairs train, valid, test;
  const TextPairs& part(Part part) const;
};

/// Reads the pairs. Throws InputError with file and line for a line without the columns or with invalid UTF-8, for two
/// files with different numbers of lines (naming both), for two folders with other files, and for training data without
/// any pair.
PairSets read_pairs(const PairTextOptions& options);

}  // namespace mnemo::data
