#include "base/machine.h"

#include <ATen/Version.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/version.h"

namespace mnemo::base {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown host";
}

int64_t usable_memory() {
  const int64_t all = machine_memory();
  std::ifstream group("/sys/fs/cgroup/memory.max");  // a number, or "max"
  int64_t most = 0;
  return group >> most && most > 0 ? std::min(most, all) : all;
}

int64_t allow_open_files(int64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, static_cast<rlim_t>(wanted)));
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
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

int64_t resident_memory() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number
  return pages * sysconf(_SC_PAGESIZE);
}

Machine this_machine() {
  Machine machine;
  machine.cpu = processor_name();
  machine.capability = at::get_cpu_capability();
  machine.features = processor_features();
  machine.cores = usable_cores();
  machine.memory = machine_memory();
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
