#pragma once

#include <cstdint>
#include <vector>

namespace mnemo::data {

/// The order in which a training set of `size` samples is gone through, over and over: as it is, or shuffled anew every
/// epoch by the seed and the epoch's number alone, so a position is one number.
class EpochOrder {
 public:
  EpochOrder(int64_t size, bool shuffle, int64_t seed) : size_(size), shuffle_(shuffle), seed_(seed) {}

  /// The sample that comes `index`-th, counted over all epochs.
  int64_t operator[](int64_t index);
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  int64_t seed_;
  int64_t epoch_ = -1;  // that order_ belongs to
  std::vector<int32_t> order_;
};

}  // namespace mnemo::data
