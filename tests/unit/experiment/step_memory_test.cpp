// The estimate, before a training begins, of the memory that it needs.
#include <gtest/gtest.h>

#include "base/error.h"
#include "experiment/experiment.h"
#include "tests/support/expect_error.h"

namespace mnemo::experiment {
namespace {

using test::expect_error;

recipes::Recipe copy_task(const std::string& more) {
  return recipes::read_recipe(base::parse_toml(
      "[data]\ntype = \"algorithmic\"\ntask = \"copy\"\n[model.backbone]\nnum_layers = 1\ndim = 64\nnum_heads = "
      "1\nffn_dim = 4096\n[train]\nbatch_size = 1\n" +
          more,
      "test"));
}

// Adam keeps two numbers of each parameter, SGD with momentum one; what is not trained needs neither these nor a
// gradient.
TEST(StepMemory, CountsGradientsAndTheOptimizersState) {
  const std::pair<const char*, int64_t> numbers[] = {{"optimiser = { type = \"adamw\" }", 4},
                                                     {"optimiser = { type = \"sgd\", momentum = 0.9 }", 3},
                                                     {"optimiser = { type = \"sgd\" }", 2},
                                                     {"only = [\"head.*\"]", 1}};
  for (const auto& [more, count] : numbers) {
    const Experiment experiment = make_experiment(copy_task(more));
    const int64_t parameters = 4 * count * experiment.model->parameters().count();
    expect_error<base::InputError>([&] { require_step_fits(experiment, parameters - 1); },
                                   {"parameters with their gradients and the optimizer's state need"});
    expect_error<base::InputError>([&] { require_step_fits(experiment, parameters + 1); }, {"a step of 1 sequences"});
    require_step_fits(experiment, parameters + (int64_t{1} << 24));
  }
}

}  // namespace
}  // namespace mnemo::experiment
