#include "base/process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

namespace mnemo::base {
namespace {

/// Runs `check` in a child process, since the settings last as long as their process. True if it returned true.
bool in_child(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#ifdef MNEMO_MKL_OVERRIDE
using Question = int (*)();

Question seen_by_libraries() { return reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, "mkl_serv_intel_cpu_true")); }

Question libtorchs_own() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Question>(dlsym(library, "mkl_serv_intel_cpu_true"));
}

TEST(ProcessSettings, TheExecutablesAnswerComesBeforeLibTorchs) {
  ASSERT_NE(libtorchs_own(), nullptr);
  EXPECT_NE(seen_by_libraries(), libtorchs_own());
  EXPECT_TRUE(in_child([] { return unsetenv("MNEMO_MKL_OVERRIDE") == 0 && seen_by_libraries()() == 1; }));
  EXPECT_TRUE(in_child([] { return init_process().mkl_override; }));
}

TEST(ProcessSettings, VariableGivesMklItsOwnAnswerBack) {
  EXPECT_TRUE(in_child([] {
    setenv("MNEMO_MKL_OVERRIDE", "0", 1);
    return !init_process().mkl_override && seen_by_libraries()() == libtorchs_own()();
  }));
}

#endif

#ifdef MNEMO_MALLOC_TUNING
TEST(ProcessSettings, VariableTurnsMallocTuningOff) {
  EXPECT_TRUE(in_child([] {
    setenv("MNEMO_MALLOC_TUNING", "0", 1);
    return !init_process().malloc_tuning &&
           describe_process_settings().find("malloc tuning off (MNEMO_MALLOC_TUNING=0)") != std::string::npos;
  }));
}

#endif

#if defined(MNEMO_MALLOC_TUNING) && !defined(__SANITIZE_ADDRESS__)  // the sanitizer has its own allocator
TEST(ProcessSettings, FreedBlocksStayInTheProcess) {
  EXPECT_TRUE(in_child([] {
    if (!init_process().malloc_tuning) return false;
    const auto end_of_heap = [] { return reinterpret_cast<std::uintptr_t>(sbrk(0)); };
    void* volatile block = std::malloc(64u << 20);
    const std::uintptr_t end = end_of_heap();
    const bool from_heap = reinterpret_cast<std::uintptr_t>(block) < end;  // separate mappings are above it
    std::free(block);
    return from_heap && end_of_heap() == end;
  }));
}
#endif

TEST(ProcessSettings, DescriptionNamesBoth) {
  EXPECT_TRUE(in_child([] {
    const ProcessSettings& active = init_process();
    const std::string text = describe_process_settings();
    return text.find(active.mkl_override ? "MKL override on" : "MKL override off (") == 0 &&
           text.find(active.malloc_tuning ? ", malloc tuning on" : ", malloc tuning off (") != std::string::npos;
  }));
}

}  // namespace
}  // namespace mnemo::base
