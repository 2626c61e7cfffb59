#pragma once

#include <cstdint>
#include <string_view>

namespace mnemo::serve {

/// Recognises bytes that this process has seen before: SipHash-2-4 (Aumasson and Bernstein 2012) with a secret key, so
/// that whoever can change the bytes cannot make others with the same seal. Ten times as fast as base::Sha256 (3 GB/s
/// against 0.3 on Zen 4), which would double the time in which a large session comes back.
class Seal {
 public:
  /// A random key.
  Seal();
  Seal(uint64_t first, uint64_t second) : key_{first, second} {}
  uint64_t operator()(std::string_view bytes) const;

 private:
  uint64_t key_[2];
};

}  // namespace mnemo::serve
