#include "data/epoch_order.h"

#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace mnemo::data {

int64_t EpochOrder::operator[](int64_t index) {
  base::ensure(size_ > 0 && size_ <= INT32_MAX && index >= 0, "sample {} of a set of {}", index, size_);
  if (!shuffle_) return index % size_;
  if (const int64_t epoch = index / size_; epoch != epoch_) {
    order_.resize(static_cast<size_t>(size_));
    std::iota(order_.begin(), order_.end(), 0);
    base::Random{static_cast<uint64_t>(seed_), static_cast<uint64_t>(epoch)}.shuffle(order_);
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(index % size_)];
}

}  // namespace mnemo::data
