#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::text {

/// The entries of a vocabulary in one block of bytes: four bytes per entry plus the text itself.
class EntryList {
 public:
  void reserve(size_t bytes, size_t entries) {
    bytes_.reserve(bytes);
    ends_.reserve(entries);
  }
  /// Throws InputError past 4 GB.
  void push_back(std::string_view entry);
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view operator[](int64_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[static_cast<size_t>(i - 1)];
    return std::string_view(bytes_).substr(begin, ends_[static_cast<size_t>(i)] - begin);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

/// The content of vocabulary.json: {"type": "words", "vocabulary": ["the", "of", ...]}.
struct VocabularyFile {
  std::string type;
  EntryList entries{};
  bool has_entries = false;
};

/// One entry per line, readable for people and diff.
std::string write_vocabulary(const VocabularyFile& file);

/// Reads only the JSON above: no other keys, no nesting, no numbers. Its memory is bounded by the size of `text`.
/// Throws InputError naming `where`, the byte offset and what was expected.
VocabularyFile read_vocabulary(std::string_view text, const std::string& where);

}  // namespace mnemo::text
