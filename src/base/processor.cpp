// Also part of the program that users start, so without LibTorch.
#include "base/processor.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

namespace mnemo::base {

std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string processor_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown processor" : name;
}

std::string processor_features() {
  constexpr std::array<std::string_view, 12> kTold = {"sse4_2",      "avx",      "avx2",     "fma",
                                                      "f16c",        "avx512f",  "avx512bw", "avx512_vnni",
                                                      "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"};
  std::istringstream flags(proc_value("/proc/cpuinfo", "flags"));
  std::string features;
  for (std::string flag; flags >> flag;) {
    if (std::find(kTold.begin(), kTold.end(), flag) != kTold.end()) features += (features.empty() ? "" : " ") + flag;
  }
  return features;
}

int64_t usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

int64_t machine_memory() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

}  // namespace mnemo::base
