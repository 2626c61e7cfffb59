#include "serve/seal.h"

#include <bit>
#include <cstring>
#include <random>

namespace mnemo::serve {
namespace {

uint64_t random_word() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

struct SipState {
  uint64_t a, b, c, d;
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      a += b;
      c += d;
      b = std::rotl(b, 13) ^ a;
      d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32);
      c += b;
      a += d;
      b = std::rotl(b, 17) ^ c;
      d = std::rotl(d, 21) ^ a;
      c = std::rotl(c, 32);
    }
  }
  void add(uint64_t word) {
    d ^= word;
    rounds(2);
    a ^= word;
  }
};

}  // namespace

Seal::Seal() : Seal(random_word(), random_word()) {}

uint64_t Seal::operator()(std::string_view bytes) const {
  SipState state{key_[0] ^ 0x736f6d6570736575, key_[1] ^ 0x646f72616e646f6d, key_[0] ^ 0x6c7967656e657261,
                 key_[1] ^ 0x7465646279746573};
  const uint64_t length = bytes.size();
  for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state.add(word);
  }
  uint64_t last = 0;
  if (!bytes.empty()) std::memcpy(&last, bytes.data(), bytes.size());
  state.add(last | length << 56);
  state.c ^= 0xff;
  state.rounds(4);
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace mnemo::serve
