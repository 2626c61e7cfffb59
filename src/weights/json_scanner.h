#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weights/safetensors_header.h"

namespace mnemo::weights {

/// Reads the JSON of a safetensors header token by token, directly from the source. There is no tree and no recursion,
/// so depth costs nothing, and a string is measured before it is allocated. Anything the caller does not ask for
/// violates rule 6, or rule 7 or 13 if the caller says so. (nlohmann's SAX parser reads a whole string or number into
/// memory before anyone can reject it: a header with one name of 100 MB would take several times that.)
class JsonScanner {
 public:
  /// Bytes [begin, end) of the source.
  JsonScanner(ByteSource& source, uint64_t begin, uint64_t end, std::string_view file)
      : source_(source), file_(file), begin_(begin), end_(end), at_(begin) {}

  /// The next byte that is not whitespace, without consuming it; '\0' at the end.
  char peek();

  /// Consumes `c`, or throws an error of `rule` that says that `what` was expected.
  void expect(char c, int rule, std::string_view what);

  /// Consumes `c` if it is next.
  bool accept(char c);

  /// A string of at most `max_bytes` decoded bytes; `what` names it in messages.
  std::string string(uint64_t max_bytes, int rule, std::string_view what);

  /// A non-negative integer without sign, fraction, exponent or leading zeros.
  uint64_t integer(std::string_view what);

  /// Offset within the header, for messages.
  uint64_t offset() const { return at_ - begin_; }

  /// A description of the next character, for messages.
  std::string found();

  /// Throws an error of `rule`; an unexpected bracket is reported as too deep nesting (rule 6).
  [[noreturn]] void unexpected(int rule, std::string_view what);

 private:
  int byte();  // next byte, or -1 at the end
  void skip_space();
  uint64_t measure();
  uint32_t hex4();
  void append_escape(std::string& out);

  ByteSource& source_;
  std::string_view file_;
  uint64_t begin_;
  uint64_t end_;
  uint64_t at_;
  std::string_view window_;
  uint64_t window_at_ = 0;
};

}  // namespace mnemo::weights
