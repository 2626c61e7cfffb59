#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cli/application.h"
#include "cli/device.h"
#include "cli/machine.h"
#include "cli/process_settings.h"

namespace mnemo::cli {

std::string version_text() {
  const Machine machine = this_machine();
  return fmt::format(
      "mnemo {}\n"
      "LibTorch {}, CPU code for {}; {}\n"
      "{}, {} cores, {:.1f} GB ({})\n"
      "{}, {} threads\n",
      machine.mnemo, machine.libtorch, machine.capability, describe_cuda(), machine.cpu, machine.cores,
      static_cast<double>(machine.memory) / 1e9, machine.features, describe_process_settings(), at::get_num_threads());
}

}  // namespace mnemo::cli
