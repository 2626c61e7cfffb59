#pragma once

#include <cstdint>
#include <string>

namespace mnemo::fuzz {

/// A valid file with the changes that an input lists: three bytes each, a place modulo the size and the byte there. Two
/// bytes at the end: the length that it is cut to. A file with a digest of the model in it is not hit by chance.
inline std::string mutated(std::string file, const std::uint8_t* data, std::size_t size) {
  const auto place = [&](std::size_t i) { return (std::size_t{data[i]} << 8 | data[i + 1]) % file.size(); };
  std::size_t i = 0;
  for (; i + 2 < size; i += 3) file[place(i)] = static_cast<char>(data[i + 2]);
  if (i + 1 < size) file.resize(place(i));
  return file;
}

}  // namespace mnemo::fuzz
