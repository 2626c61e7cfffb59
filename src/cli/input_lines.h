#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mnemo::cli {

/// The lines of standard input without a byte order mark, so that a pipe's are read as they come.
class InputLines {
 public:
  static constexpr size_t kMaxLine = size_t{1} << 20;  ///< bytes

  /// Waits for the first line, and takes up to `count` of those that are there by then. False at the end, and when a
  /// signal has been recorded (SignalGuard). Throws InputError for a line of more than kMaxLine bytes, once those
  /// before it have been taken.
  bool read(size_t count, std::vector<std::string>& lines);

 private:
  bool take(std::vector<std::string>& lines);
  /// Whether the next line is more than a line may be.
  bool is_too_long() const;
  /// Reads more; false at the end and for a recorded signal.
  bool fill();

  std::string pending_;
  size_t from_ = 0;
  int64_t taken_ = 0;
};

/// All of standard input. Throws InputError if it cannot be read or has more bytes.
std::string read_standard_input(uint64_t max_bytes);

}  // namespace mnemo::cli
