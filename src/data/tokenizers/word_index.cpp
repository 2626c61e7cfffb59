#include "data/tokenizers/word_index.h"

#include <bit>
#include <cstring>
#include <random>

namespace mnemo::data {
namespace {

__extension__ using Wide = unsigned __int128;

uint64_t siphash13(const std::array<uint64_t, 2>& key, std::string_view text) {
  uint64_t a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d;
  uint64_t c = key[0] ^ 0x6c7967656e657261, d = key[1] ^ 0x7465646279746573;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  };
  const auto block = [&](uint64_t word) {
    d ^= word;
    round();
    a ^= word;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    block(word);
  }
  uint64_t last = 0;
  std::memcpy(&last, text.data() + at, text.size() - at);
  block(last | static_cast<uint64_t>(text.size()) << 56);
  c ^= 0xFF;
  round(), round(), round();
  return a ^ b ^ c ^ d;
}

}  // namespace

WordIndex::WordIndex(const EntryList& entries) : entries_(entries) {
  std::random_device random;
  for (uint64_t& half : key_) half = (static_cast<uint64_t>(random()) << 32) | random();
  const size_t count = static_cast<size_t>(entries.size());
  slots_.assign(count + count / 4 + 1, -1);
  for (int64_t i = 0; i < entries.size(); ++i) {
    size_t slot = home(entries[i]);
    for (; slots_[slot] >= 0; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
      if (entries[slots_[slot]] == entries[i]) {
        duplicate_ = i;
        return;
      }
    }
    slots_[slot] = static_cast<int32_t>(i);
  }
}

int64_t WordIndex::find(std::string_view word) const {
  for (size_t slot = home(word); slots_[slot] >= 0; slot = slot + 1 == slots_.size() ? 0 : slot + 1) {
    if (entries_[slots_[slot]] == word) return slots_[slot];
  }
  return -1;
}

size_t WordIndex::home(std::string_view word) const {
  // The high half of hash * size / 2^64 is uniform in [0, size), without a division.
  return static_cast<size_t>((static_cast<Wide>(siphash13(key_, word)) * slots_.size()) >> 64);
}

}  // namespace mnemo::data
