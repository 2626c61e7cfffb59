#include "base/process.h"

#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

namespace {

#ifdef MNEMO_MKL_OVERRIDE
constexpr bool kMklOverrideBuilt = true;
#else
constexpr bool kMklOverrideBuilt = false;
#endif
#ifdef MNEMO_MALLOC_TUNING
constexpr bool kMallocTuningBuilt = true;
#else
constexpr bool kMallocTuningBuilt = false;
#endif

bool turned_off(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, "0") == 0;
}

}  // namespace

#ifdef MNEMO_MKL_OVERRIDE
/// MKL asks this before it chooses its code path. It stands in libtorch_cpu as well; the executable's comes first in
/// the order of symbols. MKL asks only once or twice, perhaps before main, so the variable is read here.
extern "C" __attribute__((visibility("default"), used)) int mkl_serv_intel_cpu_true() {
  if (!turned_off("MNEMO_MKL_OVERRIDE")) return 1;
  using Question = int (*)();
  const auto original = reinterpret_cast<Question>(dlsym(RTLD_NEXT, "mkl_serv_intel_cpu_true"));
  return original != nullptr ? original() : 0;
}
#endif

namespace mnemo::base {

namespace {

ProcessSettings settings;

/// Whether MKL's question really reaches our answer: LibTorch resolves the name in the order executable, libraries.
bool mkl_override_reaches_mkl() {
#ifdef MNEMO_MKL_OVERRIDE
  return dlsym(RTLD_DEFAULT, "mkl_serv_intel_cpu_true") == reinterpret_cast<void*>(&mkl_serv_intel_cpu_true);
#else
  return false;
#endif
}

bool tune_malloc() {
#ifdef M_MMAP_THRESHOLD
  return mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1 && mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1;
#else
  return false;
#endif
}

std::string describe(const char* name, const char* variable, bool built, bool active) {
  std::string text = std::string(name) + (active ? " on" : " off");
  if (!built) return text + " (not built in)";
  if (active) return text;
  return text + (turned_off(variable) ? " (" + std::string(variable) + "=0)" : " (no effect in this build)");
}

/// ", NAME=VALUE" of a variable of the environment that is set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : ", " + std::string(name) + "=" + value;
}

}  // namespace

const ProcessSettings& init_process() {
  settings.mkl_override = kMklOverrideBuilt && !turned_off("MNEMO_MKL_OVERRIDE") && mkl_override_reaches_mkl();
  settings.malloc_tuning = kMallocTuningBuilt && !turned_off("MNEMO_MALLOC_TUNING") && tune_malloc();
  return settings;
}

std::string describe_process_settings() {
  return describe("MKL override", "MNEMO_MKL_OVERRIDE", kMklOverrideBuilt, settings.mkl_override) + ", " +
         describe("malloc tuning", "MNEMO_MALLOC_TUNING", kMallocTuningBuilt, settings.malloc_tuning) +
         variable("OMP_WAIT_POLICY") + variable("GOMP_SPINCOUNT");
}

void spin_briefly(char** words, char** environment) {
  constexpr size_t kMax = 4096;
  static char* now[kMax + 2];
  static char spin[] = "GOMP_SPINCOUNT=1000";
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMax || std::strncmp(environment[count], "GOMP_SPINCOUNT=", 15) == 0 ||
        std::strncmp(environment[count], "OMP_WAIT_POLICY=", 16) == 0) {
      return;
    }
    now[count] = environment[count];
  }
  now[count] = spin;
  char program[PATH_MAX + 1];
  const ssize_t length = readlink("/proc/self/exe", program, PATH_MAX);
  if (length <= 0) return;
  program[length] = '\0';
  execve(program, words, now);
}

}  // namespace mnemo::base
