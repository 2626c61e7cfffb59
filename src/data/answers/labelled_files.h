#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::data {

/// A text, or a pair of texts, and its label.
struct LabelledText {
  std::shared_ptr<const std::string> file;  ///< its path, which the texts of a file share
  int64_t line = 0;                         ///< from 1; 0: the whole file, or the path says the line
  std::string first;
  std::optional<std::string> second;
  std::string label;
  bool whole_file = false;  ///< `first` is the file
  std::string id = {};      ///< of an article; empty: the format has none

  /// "FILE:LINE" or "FILE", for messages.
  std::string where() const;
};
/// Not a vector, which takes three times as much while it grows: tables have millions of short lines.
using LabelledTextList = std::deque<LabelledText>;

/// The texts of a file.
struct LabelledTexts {
  LabelledTextList texts;
  std::vector<std::string> labels;  ///< all that its format has, in order; empty: any
};

/// Names of columns in the header line of a table, or keys of JSON lines; all empty: the columns of a published format.
struct LabelledColumns {
  std::string text, second, label;
};

/// A table (TableKind): tab-separated columns with no quoting, CSV, or JSON lines. Without column names the file is one
/// of GLUE as published (Wang et al. 2019), known by its first line: SST-2, CoLA, MRPC, RTE, QNLI, QQP, MNLI. Lines of
/// QQP without all columns are left out, with a warning. Throws InputError that names file, line and column for another
/// number of columns, an unknown header, or a word of more than kMaxLabelledWord bytes.
LabelledTexts read_labelled_table(const std::string& path, const LabelledColumns& columns);

/// Whether a table begins with the header line of such a file, or is CoLA, which has none.
bool is_published_table(const std::vector<std::string>& first_row);

/// A folder with a folder of text files for each label (IMDB: neg/, pos/), in order of their names. wanted: the labels
/// to read; empty: all. Throws InputError if one is missing or has no file NAME.txt.
LabelledTexts read_labelled_folder(const std::string& path, const std::vector<std::string>& wanted);

/// Most bytes of a word, that is text between white space.
inline constexpr size_t kMaxLabelledWord = size_t{1} << 16;

/// Throws InputError that names `where` and, of a line, the byte column of a longer word. column: that of the text's
/// first byte, from 1; unset: the text is not as the file has it.
void require_words(const std::string& where, std::string_view text, std::optional<size_t> column);

}  // namespace mnemo::data
