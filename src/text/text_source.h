#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace mnemo::text {

/// A text file, or a byte range of it. It is read in chunks and never held in memory as a whole. Or a text that is made
/// piece by piece whenever it is read (packed, or of several files), or one in memory.
class TextSource {
 public:
  /// The whole file. Throws InputError if it cannot be opened or is not a regular file.
  explicit TextSource(std::string path);
  /// Calls the function with a text piece by piece, always the same.
  using Reader = std::function<void(const std::function<void(std::string_view)>& use)>;
  /// The text that `reader` gives, which is read once for its size; `name` is its path in error messages. To find the
  /// start of a range, all before it is read.
  static TextSource streamed(std::string name, Reader reader);
  /// A text in memory; `name` likewise.
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
  void stream(const std::function<bool(std::string_view)>& use, int64_t chunk_size) const;

  std::string path_;
  std::shared_ptr<const std::string> text_;  ///< null: a file, or
  Reader reader_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace mnemo::text
