#pragma once

#include <cstdint>
#include <string>

namespace mnemo::test {

/// A safetensors file assembled by hand, valid or not: length, header, data.
inline std::string raw_safetensors(uint64_t claimed, const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(claimed >> (8 * i) & 0xFF);
  return out + header + data;
}

inline std::string raw_safetensors(const std::string& header, const std::string& data = {}) {
  return raw_safetensors(header.size(), header, data);
}

}  // namespace mnemo::test
