#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/text_source.h"

namespace mnemo::data {

/// A position in a file, for error messages.
struct LinePlace {
  std::string_view file;
  int64_t line = 0;  ///< from 1

  /// "FILE:LINE:COLUMN", the column in bytes from 1.
  std::string at(int64_t column) const;
};

/// Calls `use` with every line of a text, without its line end (LF or CR LF). Throws InputError for a line of more than
/// `max_line` bytes.
void for_each_line(const text::TextSource& text, int64_t max_line,
                   const std::function<void(const LinePlace&, std::string_view)>& use);

}  // namespace mnemo::data
