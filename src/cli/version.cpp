#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include "base/version.h"
#include "cli/application.h"
#include "cli/version_text.h"
#include "experiment/device.h"

namespace mnemo::cli {

std::string version_text() {
  return version_text(
      {MNEMO_VERSION, TORCH_VERSION, experiment::describe_cuda(), at::get_cpu_capability(), at::get_num_threads()});
}

}  // namespace mnemo::cli
