#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include "base/version.h"
#include "cli/application.h"
#include "cli/version_text.h"
#include "experiment/device.h"
#include "ops/linear/tile_products.h"

namespace mnemo::cli {

std::string version_text() {
  const bool amx = base::processor_features().find("amx_int8") != std::string::npos;
  return version_text({MNEMO_VERSION, TORCH_VERSION, experiment::describe_cuda(), at::get_cpu_capability(),
                       at::get_num_threads(),
                       !amx               ? ""
                       : ops::has_tiles() ? ", tiles used"
                                          : ", tiles not used"});
}

}  // namespace mnemo::cli
