#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// A table of text: for a terminal with aligned columns, or as Markdown. Columns are aligned by characters, each
/// counted as one column wide.
class TextTable {
 public:
  enum class Align { left, right };

  /// `align` may be shorter than `header`; the rest is left-aligned.
  explicit TextTable(std::vector<std::string> header, std::vector<Align> align = {});

  /// Missing cells are empty. Throws InternalError if there are more cells than columns.
  void add_row(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }

  /// Two spaces between columns, a line under the header, no spaces at line ends. When `width` is not 0, the last
  /// column is broken between words to fit into it. Where that leaves it too narrow, all columns are broken, and, where
  /// not even that is enough, words are cut. If these are words of the header, columns become lines where that fits.
  std::string text(size_t width = 0) const;

  /// A Markdown table; '|' in cells is escaped.
  std::string markdown() const;

 private:
  Align align(size_t column) const { return column < align_.size() ? align_[column] : Align::left; }
  /// The widths of the columns of a table that is at most `width` wide (0: any). tight: whether words are cut.
  std::vector<size_t> widths(size_t width, bool& tight) const;
  /// The table whose lines are the columns of this one.
  TextTable turned() const;

  std::vector<std::string> header_;
  std::vector<Align> align_;
  std::vector<std::vector<std::string>> rows_;
};

/// Breaks text between words into lines of at most `width` characters (longer words stay whole); 0: one line.
std::vector<std::string> wrap_words(std::string_view text, size_t width);

/// Number of characters of UTF-8 text.
size_t text_width(std::string_view text);

}  // namespace mnemo::base
