// The estimate, before a training begins, of the memory that it needs.
#include <gtest/gtest.h>

#include "base/error.h"
#include "experiment/experiment.h"
#include "models/model.h"
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

// A training whose files are refused would leave nothing behind.
TEST(StepMemory, FilesThatCouldNotBeReadAgainAreRefusedBeforeTheTraining) {
  const auto refused = [](const std::string& set, const std::string& more, const std::string& what) {
    recipes::Recipe recipe = copy_task(more);
    recipe.model.backbone.stack().num_layers = 250;
    recipe.model.backbone.stack().dim = recipe.model.backbone.stack().ffn_dim = 8;
    if (!set.empty()) recipe.model.backbone.stack().num_layers = std::stoll(set);
    expect_error<base::InputError>([&] { require_step_fits(make_experiment(recipe), int64_t{1} << 40); },
                                   {what, "could be read again"});
  };
  refused("", "optimiser = { type = \"sgd\" }", "the model would have");
  refused("100", "optimiser = { type = \"adamw\" }", "the optimizer's state would have");
}

TEST(StepMemory, CountsTheSegmentsThatGradientsCrossAndMemoryRows) {
  const auto of = [](const std::string& memory) {
    return make_experiment(recipes::read_recipe(base::parse_toml(
        "[data]\ntype = \"algorithmic\"\ntask = \"copy\"\nnum_symbols = 20\nnum_segments = 6\n[model.backbone]\n"
        "num_layers = 1\ndim = 64\nnum_heads = 1\nffn_dim = 64\n[train]\nbatch_size = 1000\n[[model.memory]]\ntype = "
        "\"recurrent_tokens\"\n" +
            memory,
        "test")));
  };
  const Experiment cut = of("bptt_depth = 0\nnum_mem_tokens = 1\n"), through = of("num_mem_tokens = 1\n"),
                   wide = of("bptt_depth = 0\nnum_mem_tokens = 50\n");
  const int64_t enough = 120'000'000;
  require_step_fits(cut, enough);
  // Each rank has its share of the rows, and a model of its own.
  expect_error<base::InputError>([&] { require_step_fits(cut, enough / 3); }, {"a step of 1000 sequences"});
  require_step_fits(cut, enough / 3, {.all = 4, .on_this_machine = 1});
  expect_error<base::InputError>([&] { require_step_fits(cut, enough / 3, {.all = 4, .on_this_machine = 4}); },
                                 {"a step of 250 sequences", "each of its 4 processes here has 10 MB"});
  expect_error<base::InputError>([&] { require_step_fits(through, enough); },
                                 {"with gradients through 6 segments ('train.recompute')"});
  expect_error<base::InputError>([&] { require_step_fits(wide, enough); },
                                 {"a step of 1000 sequences of 10 tokens needs"});
}

}  // namespace
}  // namespace mnemo::experiment
