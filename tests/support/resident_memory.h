#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace mnemo::test {

/// Bytes of this process that are in memory now.
inline int64_t resident_memory() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace mnemo::test
