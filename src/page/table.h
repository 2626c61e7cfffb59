#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::page {

/// A table of short strings, for a terminal or an HTML page.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  size_t left = 0;  ///< number of left-aligned leading columns; the others are right-aligned
};

std::string text_of(const Table& cells);
std::string html_of(const Table& cells);
/// The table as HTML, folded: a click on `summary` opens it.
std::string folded(const Table& cells, std::string_view summary);

/// "12.3 %"
std::string share_text(double share);

}  // namespace mnemo::page
