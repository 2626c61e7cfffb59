#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/merge_order.h"

namespace mnemo::text {

/// The merges of a byte-pair encoding (Sennrich et al. 2016) over token ids.
class BpeMerges {
 public:
  struct Merge {
    int32_t left = 0, right = 0, merged = 0;
  };

  BpeMerges() : BpeMerges(std::vector<Merge>()) {}
  /// In order of their rank.
  explicit BpeMerges(const std::vector<Merge>& merges);

  /// The rank of the first merge whose pair has come before, or -1.
  int64_t duplicate() const { return duplicate_; }

  /// Joins neighbours until no pair of them has a merge: always the pair of the lowest rank, of equal ones the
  /// leftmost. Takes time n^2 for few symbols, n for many.
  void apply(std::vector<int32_t>& symbols) const;

 private:
  static constexpr uint32_t kNone = kNoMerge;
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNone;
    int32_t merged = 0;
  };

  /// The merge of a pair; rank kNone if there is none.
  const Slot& find(int32_t left, int32_t right) const;
  size_t home(uint64_t pair) const;
  void apply_few(std::vector<int32_t>& symbols) const;
  void apply_many(std::vector<int32_t>& symbols) const;

  std::vector<Slot> slots_;  // linear probing; the last slot of a run is empty
  uint64_t multiplier_;      // random, so that a file cannot choose pairs that collide
  int shift_;
  int64_t duplicate_ = -1;
};

}  // namespace mnemo::text
