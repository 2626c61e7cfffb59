#include "cli/process_settings.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

namespace mnemo::cli {
namespace {

using Question = int (*)();

/// Runs `check` in a child process, since the settings last as long as their process. True when it returned true.
bool in_child(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Question seen_by_libraries() { return reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, "mkl_serv_intel_cpu_true")); }

Question libtorchs_own() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Question>(dlsym(library, "mkl_serv_intel_cpu_true"));
}

TEST(ProcessSettings, TheExecutablesAnswerComesBeforeLibTorchs) {
  ASSERT_NE(libtorchs_own(), nullptr);
  EXPECT_NE(seen_by_libraries(), libtorchs_own());
  EXPECT_TRUE(in_child([] { return unsetenv("MNEMO_MKL_OVERRIDE") == 0 && seen_by_libraries()() == 1; }));
  EXPECT_TRUE(in_child([] { return apply_process_settings().mkl_override; }));
}

TEST(ProcessSettings, VariableGivesMklItsOwnAnswerBack) {
  EXPECT_TRUE(in_child([] {
    setenv("MNEMO_MKL_OVERRIDE", "0", 1);
    return !apply_process_settings().mkl_override && seen_by_libraries()() == libtorchs_own()();
  }));
}

TEST(ProcessSettings, VariableTurnsMallocTuningOff) {
  EXPECT_TRUE(in_child([] {
    setenv("MNEMO_MALLOC_TUNING", "0", 1);
    return !apply_process_settings().malloc_tuning && !process_settings().malloc_tuning &&
           describe_process_settings().find("malloc tuning off (MNEMO_MALLOC_TUNING=0)") != std::string::npos;
  }));
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizer has an allocator of its own
TEST(ProcessSettings, FreedBlocksStayInTheProcess) {
  EXPECT_TRUE(in_child([] {
    if (!apply_process_settings().malloc_tuning) return false;
    void* first = std::malloc(64u << 20);
    std::free(first);
    void* second = std::malloc(64u << 20);  // from the heap again, so at the same place
    std::free(second);
    return first == second && static_cast<char*>(sbrk(0)) > static_cast<char*>(first);
  }));
}
#endif

TEST(ProcessSettings, DescriptionNamesBoth) {
  EXPECT_TRUE(in_child([] {
    unsetenv("MNEMO_MKL_OVERRIDE");
    apply_process_settings();
    const std::string text = describe_process_settings();
    return text.find("MKL override on") == 0 && text.find("malloc tuning") != std::string::npos;
  }));
}

}  // namespace
}  // namespace mnemo::cli
