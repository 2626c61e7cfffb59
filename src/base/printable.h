#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mnemo::base {

/// Escapes untrusted text for messages: control characters, DEL and invalid UTF-8 become \xNN, and the text is
/// truncated after `max_bytes` with "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

/// Checks UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF) piece by piece.
class Utf8Checker {
 public:
  /// Offset in the whole stream of the first byte of the first malformed sequence, or nothing so far.
  std::optional<size_t> feed(std::string_view piece);

  /// Like feed, after the last piece: an incomplete sequence is malformed too.
  std::optional<size_t> finish() const;

 private:
  size_t seen_ = 0;        // bytes before the current one
  size_t start_ = 0;       // start of the open sequence
  int open_ = 0;           // continuation bytes still expected
  unsigned char low_ = 0;  // range that the next continuation byte must lie in
  unsigned char high_ = 0;
  std::optional<size_t> bad_;
};

/// Offset of the first malformed UTF-8 sequence of a text, or nothing.
std::optional<size_t> first_invalid_utf8(std::string_view text);

}  // namespace mnemo::base
