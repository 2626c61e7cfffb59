#include <unistd.h>

#include <cstdio>

#include "cli/application.h"
#include "cli/process_settings.h"

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
