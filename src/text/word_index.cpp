#include "text/word_index.h"

#include <bit>
#include <cstring>
#include <random>

namespace mnemo::text {
namespace {

__extension__ using Wide = unsigned __int128;

/// The hash of a text, and of every text that it starts with.
class SipHash13 {
 public:
  explicit SipHash13(const std::array<uint64_t, 2>& key)
      : a_(key[0] ^ 0x736f6d6570736575),
        b_(key[1] ^ 0x646f72616e646f6d),
        c_(key[0] ^ 0x6c7967656e657261),
        d_(key[1] ^ 0x7465646279746573) {}

  /// Takes eight bytes.
  void block(uint64_t word) {
    d_ ^= word;
    round();
    a_ ^= word;
  }

  /// The hash of a text of `size` bytes, whose last size % 8 bytes are these.
  uint64_t finish(const char* last, size_t size) const {
    uint64_t word = 0;
    std::memcpy(&word, last, size % 8);
    SipHash13 end = *this;
    end.block(word | static_cast<uint64_t>(size) << 56);
    end.c_ ^= 0xFF;
    end.round(), end.round(), end.round();
    return end.a_ ^ end.b_ ^ end.c_ ^ end.d_;
  }

 private:
  void round() {
    a_ += b_, b_ = std::rotl(b_, 13) ^ a_, a_ = std::rotl(a_, 32);
    c_ += d_, d_ = std::rotl(d_, 16) ^ c_;
    a_ += d_, d_ = std::rotl(d_, 21) ^ a_;
    c_ += b_, b_ = std::rotl(b_, 17) ^ c_, c_ = std::rotl(c_, 32);
  }

  uint64_t a_, b_, c_, d_;
};

uint64_t block_at(std::string_view text, size_t at) {
  uint64_t word;
  std::memcpy(&word, text.data() + at, 8);
  return word;
}

uint64_t hash_of(const std::array<uint64_t, 2>& key, std::string_view text) {
  SipHash13 hash(key);
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) hash.block(block_at(text, at));
  return hash.finish(text.data() + at, text.size());
}

}  // namespace

WordIndex::WordIndex(const EntryList& entries) : WordIndex(entries, false) {}

WordIndex::WordIndex(const EntryList& entries, bool last_counts) : entries_(entries) {
  std::random_device random;
  for (uint64_t& half : key_) half = (static_cast<uint64_t>(random()) << 32) | random();
  const size_t count = static_cast<size_t>(entries.size());
  slots_.assign(count + count / 4 + 1, -1);
  for (int64_t i = 0; i < entries.size(); ++i) {
    size_t slot = home(hash_of(key_, entries[i]));
    for (; slots_[slot] >= 0; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
      if (entries[slots_[slot]] != entries[i]) continue;
      if (last_counts) break;
      duplicate_ = i;
      return;
    }
    slots_[slot] = static_cast<int32_t>(i);
  }
}

int64_t WordIndex::find(std::string_view word) const { return find(word, hash_of(key_, word)); }

int64_t WordIndex::find(std::string_view word, uint64_t hash) const {
  for (size_t slot = home(hash); slots_[slot] >= 0; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
    if (entries_[slots_[slot]] == word) return slots_[slot];
  }
  return -1;
}

void WordIndex::for_each_prefix(std::string_view text, const std::function<void(size_t, int64_t)>& use) const {
  SipHash13 hash(key_);
  for (size_t length = 1; length <= text.size(); ++length) {
    if (length % 8 == 0) hash.block(block_at(text, length - 8));
    const int64_t found = find(text.substr(0, length), hash.finish(text.data() + length / 8 * 8, length));
    if (found >= 0) use(length, found);
  }
}

size_t WordIndex::home(uint64_t hash) const {
  // The high half of hash * size / 2^64 is uniform in [0, size), without a division.
  return static_cast<size_t>((static_cast<Wide>(hash) * slots_.size()) >> 64);
}

}  // namespace mnemo::text
