#include "text/merge_order.h"

#include <algorithm>
#include <tuple>

namespace mnemo::text {

bool MergeQueue::pop(uint32_t& rank, uint32_t& place) {
  if (early_.empty() && done_ == now_.size()) {
    if (later_.empty()) return false;
    auto lowest = later_.extract(later_.begin());
    rank_ = lowest.key();
    now_ = std::move(lowest.mapped());
    done_ = 0;
    // Merges of one rank find their places in ascending order; several of them may have led here.
    if (!std::is_sorted(now_.begin(), now_.end())) std::sort(now_.begin(), now_.end());
  }
  const auto current = static_cast<uint32_t>(rank_);
  if (!early_.empty() && (done_ == now_.size() || early_.top() <= Entry(current, now_[done_]))) {
    std::tie(rank, place) = early_.top();
    early_.pop();
  } else {
    rank = current;
    place = now_[done_++];
  }
  return true;
}

}  // namespace mnemo::text
