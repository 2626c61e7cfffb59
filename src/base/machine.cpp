#include "base/machine.h"

#include <ATen/Version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/version.h"

namespace mnemo::base {
namespace {

/// The value of the first line "key : value" in a /proc file; empty if there is none.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string cpu_features() {
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

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown host";
}

int64_t usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

int64_t usable_memory() {
  const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream group("/sys/fs/cgroup/memory.max");  // a number, or "max"
  int64_t most = 0;
  return group >> most && most > 0 ? std::min(most, all) : all;
}

int64_t peak_memory() {
  // VmHWM counts only this program; getrusage also includes the process that started it.
  if (const std::string peak = proc_value("/proc/self/status", "VmHWM"); !peak.empty()) return std::stoll(peak) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return usage.ru_maxrss * 1024;
#endif
}

Machine this_machine() {
  Machine machine;
  machine.cpu = proc_value("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown processor";
  machine.capability = at::get_cpu_capability();
  machine.features = cpu_features();
  machine.cores = usable_cores();
  machine.memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  utsname system{};
  if (uname(&system) == 0) machine.system = std::string(system.sysname) + " " + system.release + " " + system.machine;
  machine.libtorch = TORCH_VERSION;
  machine.mnemo = MNEMO_VERSION;
  return machine;
}

base::Node to_node(const Machine& machine) {
  return base::Node::table({{"cpu", machine.cpu},
                            {"capability", machine.capability},
                            {"features", machine.features},
                            {"cores", machine.cores},
                            {"memory", machine.memory},
                            {"system", machine.system},
                            {"libtorch", machine.libtorch},
                            {"mnemo", machine.mnemo}});
}

}  // namespace mnemo::base
