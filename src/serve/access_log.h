#pragma once

#include <cstddef>
#include <mutex>
#include <string>

namespace mnemo::serve {

/// Lines on a file descriptor, written without waiting for who reads them. What a full pipe does not take of a line
/// waits for the next call; lines that come meanwhile are dropped. Any thread may call it.
class AccessLog {
 public:
  explicit AccessLog(int descriptor) : descriptor_(descriptor) {}
  /// line: with its end.
  void write(std::string line);
  /// Writes what waits.
  void flush();

 private:
  /// True if nothing waits any more.
  bool write_on();

  int descriptor_;
  std::mutex mutex_;
  std::string line_;
  size_t written_ = 0;  // of it
};

}  // namespace mnemo::serve
