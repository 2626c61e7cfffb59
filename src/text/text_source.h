#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace mnemo::text {

/// A text file, or a byte range of it. It is read in chunks and never held in memory as a whole. Or a text in memory.
class TextSource {
 public:
  /// The whole file. Throws InputError if it cannot be opened or is not a regular file.
  explicit TextSource(std::string path);
  /// A text in memory; `name` is its path in error messages.
  static TextSource in_memory(std::string name, std::string text);

  /// Bytes [begin, end) of the same file.
  TextSource range(int64_t begin, int64_t end) const;

  /// This source without the byte order mark at its start, if it has one.
  TextSource without_byte_order_mark() const;

  const std::string& path() const { return path_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t size() const { return end_ - begin_; }

  /// Calls `use` with consecutive chunks of at most `chunk_size` bytes until the end, or until `use` returns false.
  /// Throws InputError if the file cannot be read or became shorter.
  void for_each_chunk(const std::function<bool(std::string_view)>& use, int64_t chunk_size = int64_t{1} << 20) const;

 private:
  TextSource() = default;

  std::string path_;
  std::shared_ptr<const std::string> text_;  ///< null: a file
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace mnemo::text
