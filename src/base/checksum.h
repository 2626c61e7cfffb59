#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mnemo::base {

/// SHA-256 (FIPS 180-4), fed in pieces. Chosen over a CRC because a reader of a manifest can check it with `sha256sum`,
/// and written here because the only packaged one is the whole of OpenSSL's libcrypto.
class Sha256 {
 public:
  void update(const void* data, size_t n);
  void update(std::string_view text) { update(text.data(), text.size()); }

  /// The digest as 64 lowercase hexadecimal digits; the object must not be used afterwards.
  std::string hex();

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;    // bytes waiting in block_
  uint64_t length_ = 0;  // total number of bytes
};

/// FNV-1a over whole values, for telling data apart that nobody has forged.
class Fingerprint {
 public:
  void mix(uint64_t value) { sum_ = (sum_ ^ value) * 0x100000001b3; }
  uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0xcbf29ce484222325;
};

std::string sha256(std::string_view bytes);

/// Digest of a file's content, read in pieces of 1 MB. Throws InputError if it cannot be read.
std::string sha256_file(const std::string& path);

}  // namespace mnemo::base
