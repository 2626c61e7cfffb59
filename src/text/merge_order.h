#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace mnemo::text {

/// Places of a text by (rank, place), the lowest first. Places of a rank above all that came out lie in a list of that
/// rank, so that a long text takes time proportional to its length; others go through a heap.
class MergeQueue {
 public:
  void push(uint32_t rank, uint32_t place) {
    if (rank > rank_) {
      later_[rank].push_back(place);
    } else {
      early_.emplace(rank, place);
    }
  }

  /// The next place, and its rank; false if there is none.
  bool pop(uint32_t& rank, uint32_t& place);

 private:
  using Entry = std::pair<uint32_t, uint32_t>;

  std::map<uint32_t, std::vector<uint32_t>> later_;
  std::vector<uint32_t> now_;  // the places of rank_, ascending
  size_t done_ = 0;            // of now_
  int64_t rank_ = -1;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> early_;
};

/// Rank of two neighbours that are not joined.
inline constexpr uint32_t kNoMerge = UINT32_MAX;

/// Joins neighbours among symbols 0 to count - 1 until none of them can be: always the two of the lowest rank, of equal
/// ones the leftmost.
///   rank(left, right, end): of joining the symbols that begin at left and right, `end` being where the one behind them
///     begins; kNoMerge if they cannot be joined. Called again for both sides of what was joined, the left one first.
///   join(left, right): they become one, which begins at left.
/// Returns where the next symbol begins, by the place where one begins.
template <class Rank, class Join>
std::vector<uint32_t> join_neighbours(uint32_t count, Rank&& rank, Join&& join) {
  std::vector<uint32_t> next(count), previous(count), ranks(count, kNoMerge);
  MergeQueue queue;
  const auto offer = [&](uint32_t at) {
    const uint32_t right = next[at];
    ranks[at] = right < count ? rank(at, right, next[right]) : kNoMerge;
    if (ranks[at] != kNoMerge) queue.push(ranks[at], at);
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (uint32_t i = 0; i < count; ++i) offer(i);
  for (uint32_t lowest = 0, at = 0; queue.pop(lowest, at);) {
    if (ranks[at] != lowest) continue;  // one of the two has become another symbol
    const uint32_t right = next[at];
    join(at, right);
    ranks[right] = kNoMerge;
    next[at] = next[right];
    if (next[at] < count) previous[next[at]] = at;
    if (at > 0) offer(previous[at]);
    offer(at);
  }
  return next;
}

}  // namespace mnemo::text
