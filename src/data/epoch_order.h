#pragma once

#include <cstdint>
#include <vector>

namespace mnemo::data {

/// The order in which a training set of `size` samples is repeated: fixed, or reshuffled every epoch using only the
/// seed and the epoch, so a position is a single number.
class EpochOrder {
 public:
  EpochOrder(int64_t size, bool shuffle, int64_t seed) : size_(size), shuffle_(shuffle), seed_(seed) {}

  /// The `index`-th sample, counted over all epochs.
  int64_t operator[](int64_t index);
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  int64_t seed_;
  int64_t epoch_ = -1;  // the epoch of order_
  std::vector<int32_t> order_;
};

}  // namespace mnemo::data
