#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "base/exit_status.h"
#include "base/process.h"
#include "cli/application.h"

#ifndef __SANITIZE_ADDRESS__  // its own start comes first
namespace {

/// Before LibTorch's start, which would be for nothing.
void before_start(int, char** words, char** environment) { mnemo::base::spin_briefly(words, environment); }
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)(int, char**, char**) = before_start;

}  // namespace
#endif

namespace {

/// The number of a closed standard stream would be that of the next file or socket that is opened, which what is
/// printed would then go into. What stands in for it can be neither read nor written, as a closed one.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number that is free
  }
}

/// A page of a mapped file that another program has cut off.
void tell_cut_off(int) {
  constexpr std::string_view
      kText = "mnemo: error: a file was cut off while it was read (SIGBUS); start again once it is complete\n";
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) ::_exit(mnemo::base::kOwnFault);
  ::_exit(mnemo::base::kWrongInput);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  std::signal(SIGBUS, tell_cut_off);
  prctl(PR_SET_NAME, "mnemo");  // as users call it
  mnemo::base::init_process();
  const int status = mnemo::cli::run(argc, argv, mnemo::cli::make_application);
#ifndef __SANITIZE_ADDRESS__  // leaks are looked for on the way out
  // LibTorch takes its thousands of operators out of their tables one by one on the way out: a third of what `mnemo
  // --help` costs.
  std::fflush(nullptr);
  ::_exit(status);
#endif
  return status;
}
