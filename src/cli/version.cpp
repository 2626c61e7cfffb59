#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/machine.h"
#include "base/process.h"
#include "cli/application.h"
#include "experiment/device.h"

namespace mnemo::cli {

std::string version_text() {
  const base::Machine machine = base::this_machine();
  return fmt::format(
      "mnemo {}\n"
      "LibTorch {}, CPU code for {}; {}\n"
      "{}, {} cores, {:.1f} GB ({})\n"
      "{}, {} threads\n",
      machine.mnemo, machine.libtorch, machine.capability, experiment::describe_cuda(), machine.cpu, machine.cores,
      static_cast<double>(machine.memory) / 1e9, machine.features, base::describe_process_settings(),
      at::get_num_threads());
}

}  // namespace mnemo::cli
