#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/vocabulary_file.h"

namespace mnemo::text {

/// Finds the index of an entry. A keyed hash (SipHash-1-3, Aumasson and Bernstein 2012; random key) prevents a
/// vocabulary file from choosing colliding entries.
class WordIndex {
 public:
  /// Five bytes per entry. `entries` must outlive the index. duplicate() finds an entry that appears twice.
  explicit WordIndex(const EntryList& entries);
  /// Of equal entries the last counts; duplicate() finds none.
  static WordIndex of_last(const EntryList& entries) { return WordIndex(entries, true); }

  /// The index of the entry, or -1.
  int64_t find(std::string_view word) const;
  /// Calls use(length, index) for every entry that `text` starts with, the shortest first. Takes time proportional to
  /// the text.
  void for_each_prefix(std::string_view text, const std::function<void(size_t, int64_t)>& use) const;
  /// The index of the first entry equal to an earlier one, or -1.
  int64_t duplicate() const { return duplicate_; }

 private:
  WordIndex(const EntryList& entries, bool last_counts);
  int64_t find(std::string_view word, uint64_t hash) const;
  size_t home(uint64_t hash) const;

  const EntryList& entries_;
  std::array<uint64_t, 2> key_;
  std::vector<int32_t> slots_;  // entry index, -1 = empty; linear probing
  int64_t duplicate_ = -1;
};

}  // namespace mnemo::text
