#include "text/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "base/error.h"

namespace mnemo::text {
namespace {

/// Up to here, looking through all ranks at every step is faster than a queue.
constexpr size_t kFew = 48;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(const std::vector<Merge>& merges) {
  std::random_device random;
  multiplier_ = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
  const size_t size = std::bit_ceil(merges.size() + merges.size() / 2 + 2);
  shift_ = 64 - std::countr_zero(size);
  slots_.resize(size);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    size_t at = home(pair);
    while (slots_[at].rank != kNone && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at].rank != kNone) {
      duplicate_ = static_cast<int64_t>(rank);
      return;
    }
    slots_[at] = {pair, static_cast<uint32_t>(rank), merges[rank].merged};
  }
}

size_t BpeMerges::home(uint64_t pair) const {
  pair ^= pair >> 29;
  pair *= multiplier_;
  pair ^= pair >> 32;
  return static_cast<size_t>((pair * multiplier_) >> shift_);
}

const BpeMerges::Slot& BpeMerges::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  size_t at = home(pair);
  while (slots_[at].rank != kNone && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

void BpeMerges::apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFew) {
    apply_few(symbols);
  } else {
    apply_many(symbols);
  }
}

void BpeMerges::apply_few(std::vector<int32_t>& symbols) const {
  std::array<const Slot*, kFew> merges;  // of each symbol with its right neighbour
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = &find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == kNone) break;
    symbols[best] = merges[best]->merged;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      if (i + 1 < count) merges[i] = merges[i + 1];
    }
    if (best + 1 < count) merges[best] = &find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = &find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void BpeMerges::apply_many(std::vector<int32_t>& symbols) const {
  base::require(symbols.size() < kNone, "a piece of {} symbols, at most {} are supported", symbols.size(), kNone - 1);
  const std::vector<uint32_t> next = join_neighbours(
      static_cast<uint32_t>(symbols.size()),
      [&](uint32_t left, uint32_t right, uint32_t) { return find(symbols[left], symbols[right]).rank; },
      [&](uint32_t left, uint32_t right) { symbols[left] = find(symbols[left], symbols[right]).merged; });
  size_t kept = 0;
  for (uint32_t at = 0; at < symbols.size(); at = next[at]) symbols[kept++] = symbols[at];
  symbols.resize(kept);
}

}  // namespace mnemo::text
