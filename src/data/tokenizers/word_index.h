#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizers/vocabulary_file.h"

namespace mnemo::data {

/// Finds the index of an entry. A keyed hash (SipHash-1-3, Aumasson and Bernstein 2012; random key) prevents a
/// vocabulary file from choosing colliding entries.
class WordIndex {
 public:
  /// Five bytes per entry. `entries` must outlive the index. duplicate() finds an entry that appears twice.
  explicit WordIndex(const EntryList& entries);

  /// The index of the entry, or -1.
  int64_t find(std::string_view word) const;
  /// The index of the first entry equal to an earlier one, or -1.
  int64_t duplicate() const { return duplicate_; }

 private:
  size_t home(std::string_view word) const;

  const EntryList& entries_;
  std::array<uint64_t, 2> key_;
  std::vector<int32_t> slots_;  // entry index, -1 = empty; linear probing
  int64_t duplicate_ = -1;
};

}  // namespace mnemo::data
