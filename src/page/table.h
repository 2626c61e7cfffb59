#pragma once

#include <string>
#include <vector>

namespace mnemo::page {

/// A table of short texts, for a terminal or a page.
struct Cells {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// Columns aligned on the right.
std::string text_of(const Cells& cells);
std::string html_of(const Cells& cells);

/// "12.3 %"
std::string share_text(double share);

}  // namespace mnemo::page
