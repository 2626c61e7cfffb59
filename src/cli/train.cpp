#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "base/file_io.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/summary.h"
#include "cli/workbench.h"
#include "train/signals.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"
#include "weights/model_tensors.h"

namespace mnemo::cli {
namespace {

constexpr int64_t kRowsOfAnImage = 196;  // roughly: what decides whether threads are worth it

struct TrainArguments {
  std::string recipe;
  std::optional<std::string> resume, out, data, variant, device, init;
  std::vector<std::string> set;
  bool json = false;
};

/// Where a run goes and what it is made from.
struct Plan {
  std::string folder, source;
  Recipe recipe;
  bool resumes = false;
};

Plan plan_of(const TrainArguments& options) {
  base::require(options.recipe.empty() != !options.resume.has_value(),
                "train: expected a RECIPE, or --resume DIR to go on with a run, found {}", options.recipe.empty() ? "neither" : "both");
  std::vector<std::string> assignments = options.set;
  if (options.data) assignments.push_back("data.train=" + base::to_json(base::Node(*options.data), -1));
  Plan plan;
  plan.resumes = options.resume.has_value();
  if (plan.resumes) {
    base::require(!options.init, "train: --resume goes on with the run's own weights; drop --init");
    base::require(!options.out && !options.variant, "train: --resume goes on in the run's own folder; drop {}", options.out ? "--out" : "--variant");
    plan.folder = *options.resume;
    plan.source = base::join_path(plan.folder, "recipe.toml");
    base::require(base::path_exists(plan.source), "{}: no run is there (recipe.toml is missing)", plan.folder);
  } else {
    plan.source = options.recipe;
    plan.folder = options.out.value_or("runs/" + std::filesystem::path(options.recipe).stem().string());
  }
  plan.recipe = read_recipe(RecipeFile::read(plan.source, assignments).recipe(options.variant));
  if (common_options().threads > 0) plan.recipe.train.threads = common_options().threads;
  if (plan.resumes || !base::is_folder(plan.folder)) return plan;
  if (const auto checkpoint = weights::latest_checkpoint(plan.folder)) {
    base::input_error("{0}: a run is there already, up to step {1}; go on with it: mnemo train --resume {0}, or choose another --out",
                      plan.folder, checkpoint->step);
  }
  return plan;
}

std::string command_of(const Plan& plan, const TrainArguments& options) {
  std::string line = "mnemo train " + (plan.resumes ? "--resume RUN" : std::filesystem::path(options.recipe).filename().string());
  if (options.variant) line += fmt::format(" --variant '{}'", *options.variant);
  if (options.init) line += " --init " + std::filesystem::path(*options.init).filename().string();
  if (options.data) line += " --data " + std::filesystem::path(*options.data).filename().string();
  for (const std::string& assignment : options.set) line += fmt::format(" --set '{}'", assignment);
  return line;
}

void print_result(const Plan& plan, const Workbench& bench, const train::TrainReport& report, const ModelCard& card, bool json) {
  const double processed = static_cast<double>(bench.tokens_per_step) * static_cast<double>(report.steps);
  const double speed = report.seconds > 0 ? processed / report.seconds : 0;
  const std::string model = base::join_path(plan.folder, "model");
  if (json) {
    base::Node metrics = base::Node::table();
    for (const auto& [name, value] : card.metrics) metrics.set(name, json_number(value));
    print_json(base::Node::table({{"steps", report.steps},
                                  {"tokens", report.tokens},
                                  {"seconds", json_number(report.seconds)},
                                  {"tokens_per_second", json_number(speed)},
                                  {"parameters", bench.model->parameters().count()},
                                  {"held_out", metrics},
                                  {"run", plan.folder},
                                  {"model", model},
                                  {"checkpoint", report.checkpoint}}));
    return;
  }
  std::string text = fmt::format("{0} steps, {1} {4}, {2}, {3} {4} a second\n", grouped(report.steps), grouped(report.tokens),
                                 base::duration_text(report.seconds), grouped(static_cast<int64_t>(speed)), bench.unit);
  for (const auto& [name, value] : card.metrics) text += fmt::format("held-out {} {:.4f}\n", name, value);
  text += fmt::format("model: {}\n", model);
  if (bench.tokenizer) text += fmt::format("try: mnemo generate {} --prompt 'Once upon a time'\n", model);
  print(text);
}

/// Weights of another model in place of fresh ones.
void start_from(const std::string& path, Workbench& bench) {
  const std::string folder = model_folder(path);
  const StoredModel stored = read_model(folder);
  const bool same_tokens = (stored.tokenizer == nullptr) == (bench.tokenizer == nullptr) &&
                           (stored.tokenizer == nullptr || stored.tokenizer->save() == bench.tokenizer->save());
  base::require(same_tokens, "train: --init {}: its vocabulary is not that of the recipe's data, so its tokens would mean others", folder);
  weights::TensorFile file;
  file.tensors = weights::model_tensors(*stored.model);
  weights::load_model_tensors(file, *bench.model, folder);
}

int run_training(const TrainArguments& options) {
  const at::Device device = device_named(options.device);
  Plan plan = plan_of(options);
  Workbench bench = make_workbench(plan.recipe);
  if (options.init) start_from(*options.init, bench);
  move_to(*bench.model, device);
  // Part of the recipe from now on: another number of threads would not resume bit for bit.
  if (plan.recipe.train.threads == 0) {
    plan.recipe.train.threads = choose_threads(bench.model->parameters().count(), bench.tokens_per_step * (plan.recipe.is_images() ? kRowsOfAnImage : 1));
    bench.recipe.train.threads = plan.recipe.train.threads;
  }
  base::make_folders(plan.folder);
  base::write_file_atomic(base::join_path(plan.folder, "recipe.toml"), base::to_toml(base::write_options(plan.recipe)));

  const train::SignalGuard guard;
  train::Trainer trainer(*bench.model, *bench.task, bench.recipe.train, plan.folder);
  if (plan.resumes && trainer.resume_latest()) base::log_info("goes on after step {}", trainer.steps_done());
  const int64_t threads = plan.recipe.train.threads;
  base::log_info("{} parameters, {} steps, {}, into {}", grouped(bench.model->parameters().count()), plan.recipe.train.steps,
                 threads == 1 ? "one thread" : fmt::format("{} threads", threads), plan.folder);
  const std::string metric = bench.task->metric();
  train::RunHooks hooks;
  hooks.show_progress = !common_options().quiet;
  hooks.on_evaluation = [&](const train::EvaluationPoint& point) {
    base::log_info("step {}: held-out {} {:.4f}", point.step, metric, point.evaluation.at(metric));
  };
  const train::TrainReport report = trainer.run(hooks);
  if (report.signal != 0) {
    base::log_warning("stopped after step {}, saved in {}; to go on: mnemo train --resume {}", report.steps, report.checkpoint, plan.folder);
    return report.signal == SIGINT ? kInterrupted : kTerminated;
  }
  trainer.take_average();
  ModelCard card{.title = plan.recipe.name.empty() ? "A model with memory" : plan.recipe.name, .command = command_of(plan, options),
                 .metrics = {}, .steps = report.steps, .tokens = report.tokens, .seconds = report.seconds};
  if (!report.history.evaluations.empty()) card.metrics = report.history.evaluations.back().evaluation.metrics;
  write_model(base::join_path(plan.folder, "model"), bench, card);
  print_result(plan, bench, report, card, options.json);
  return kDone;
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  Command(app, "train", "trains a model from a recipe, or goes on with a run")
      .argument("RECIPE", options->recipe, "a recipe (TOML), such as recipes/text.toml", false)
      .option("--data", options->data, "FILE", "the text to learn; short for --set data.train=FILE")
      .option("--set", options->set, "KEY=VALUE", "sets a key of the recipe (mnemo help recipe); may be repeated")
      .option("--variant", options->variant, "NAME", "of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--out", options->out, "DIR", "the run's folder: recipe, log, checkpoints, model (runs/NAME of the recipe)")
      .option("--init", options->init, "MODEL", "start from this model's weights; the recipe's model must be the same")
      .option("--resume", options->resume, "DIR", "go on with a run from its newest checkpoint; --set may change its recipe")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (cpu)")
      .flag("--json", options->json, "print the result as JSON")
      .footer("mnemo train recipes/text.toml --data my.txt --out runs/mine\nmnemo train --resume runs/mine")
      .action([options] { return run_training(*options); });
}

}  // namespace mnemo::cli
