#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cli/application.h"
#include "cli/process_settings.h"

#ifndef __SANITIZE_ADDRESS__  // its own start comes first
namespace {

/// The threads of libgomp spin for about 10 ms before they sleep: good if every core is free, but beside another
/// program they take the time of the thread they wait for. How long is read from the environment before main, when
/// libgomp is loaded, and cannot be changed later, so the program starts itself again, before LibTorch's start.
void spin_briefly(int, char** argv, char** environment) {
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
  execve(program, argv, now);  // goes on where this fails
}
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)(int, char**, char**) = spin_briefly;

}  // namespace
#endif

int main(int argc, char** argv) {
  mnemo::cli::apply_process_settings();
  const int status = mnemo::cli::run(argc, argv, mnemo::cli::make_application());
#ifndef __SANITIZE_ADDRESS__  // leaks are looked for on the way out
  // LibTorch takes its thousands of operators out of their tables one by one on the way out: a third of what `mnemo
  // --help` costs.
  std::fflush(nullptr);
  ::_exit(status);
#endif
  return status;
}
