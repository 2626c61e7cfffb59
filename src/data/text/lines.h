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

/// Takes a text apart into lines, piece by piece.
class LineSplitter {
 public:
  using Use = std::function<void(const LinePlace&, std::string_view)>;

  /// `file`, `max_line` and `use` as in for_each_line().
  LineSplitter(std::string_view file, int64_t max_line, Use use)
      : place_{file, 0}, max_line_(max_line), use_(std::move(use)) {}

  void put(std::string_view piece);
  /// Ends a line that is not ended.
  void finish();

 private:
  void hand_on(std::string_view line);

  LinePlace place_;
  int64_t max_line_;
  Use use_;
  std::string pending_;
};

/// Calls `use` with every line of a text, without its line end (LF or CR LF). Throws InputError for a line of more than
/// `max_line` bytes.
void for_each_line(const text::TextSource& text, int64_t max_line,
                   const std::function<void(const LinePlace&, std::string_view)>& use);

}  // namespace mnemo::data
