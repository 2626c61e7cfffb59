#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/node_path.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/require_folder.h"
#include "base/text_format.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "cli/recipes.h"
#include "cli/signals.h"
#include "core/head.h"
#include "distributed/launch.h"
#include "experiment/device.h"
#include "models/model.h"
#include "runs/training.h"
#include "tasks/registry.h"
#include "weights/checkpoint.h"

namespace mnemo::cli {
namespace {

constexpr const char* kShare = "train on N processes of this machine, each with its share of every batch";

struct TrainArguments {
  std::string recipe;
  std::optional<std::string> resume, out, data, variant, device, init;
  std::vector<std::string> set;
  bool json = false;
  bool finetunes = false;  ///< mnemo finetune
  std::optional<std::string> model, regime, name;
  Ranks ranks{.command = "train"};
  const std::string& command() const { return ranks.command; }
};

/// The folder of a run, and its sources.
struct Plan {
  std::string folder, source;
  recipes::Recipe recipe;
  bool resumes = false;
  bool chooses_threads = true;
};

/// A launcher that starts a failed job again, as torchrun --max-restarts does, repeats its command line: the run then
/// goes on from its last checkpoint, where there is one.
bool is_restart(const std::string& run_folder) {
  const std::optional<distributed::Place> place = distributed::place_from();
  return place && place->restarts > 0 && weights::latest_checkpoint(run_folder);
}

bool sets(const TrainArguments& options, std::string_view key) {
  return std::ranges::any_of(options.set, [&](const std::string& one) { return base::assigned_key(one) == key; });
}

/// An option that stands for a key of the recipe, and an assignment of that key.
void require_said_once(const TrainArguments& options) {
  const std::pair<const char*, std::pair<const char*, bool>> shortcuts[] = {
      {"data.train", {"--data", options.data.has_value()}},
      {"finetune.model", {"--model", options.model.has_value()}},
      {"finetune.regime", {"--regime", options.regime.has_value()}},
      {"finetune.name", {"--name", options.name.has_value()}},
      {"init", {"--init", options.init.has_value()}},
      {"train.threads", {"--threads", common_options().threads > 0}}};
  for (const auto& [key, option] : shortcuts) {
    const bool set = sets(options, key);
    base::require(!option.second || !set, "{}: expected {} or --set {}, found both", options.command(), option.first,
                  key);
    base::require(!options.resume || std::string_view(key) != "init" || !set,
                  "{}: --resume continues with the run's own weights; drop --set init", options.command());
  }
}

Plan training_plan(const TrainArguments& options) {
  const std::string& command = options.command();
  require_said_once(options);
  const bool plain = options.finetunes && options.recipe.empty() && !options.resume && options.model && options.data;
  base::require(plain || !options.finetunes || !options.recipe.empty() || options.resume || !options.model,
                "finetune: --model needs --data DIR, the images to fine-tune on");
  base::require(plain || !options.finetunes || !options.recipe.empty() || options.resume || !options.data,
                "finetune: --data needs --model MODEL, the model to fine-tune");
  base::require(plain || options.recipe.empty() != !options.resume.has_value(),
                "{}: expected a RECIPE, {}or --resume DIR to resume a run, found {}", command,
                options.finetunes ? "or --model MODEL with --data DIR, " : "",
                options.recipe.empty() ? "neither" : "both");
  std::vector<std::string> assignments = options.set;
  if (options.data && !plain) assignments.push_back("data.train=" + base::to_json(base::Node(*options.data), -1));
  for (const auto& [key, value] :
       {std::pair("model", options.model), std::pair("regime", options.regime), std::pair("name", options.name)}) {
    if (value) assignments.push_back(fmt::format("finetune.{}={}", key, base::to_json(base::Node(*value), -1)));
  }
  Plan plan;
  plan.resumes = options.resume.has_value();
  if (plan.resumes) {
    base::require(!options.init, "{}: --resume continues with the run's own weights; drop --init", command);
    base::require(!options.out && !options.variant, "{}: --resume continues in the run's own folder; drop {}", command,
                  options.out ? "--out" : "--variant");
    plan.folder = *options.resume;
    base::require_folder(plan.folder, "the folder of a run");
    plan.source = base::join_path(plan.folder, "recipe.toml");
    base::require(base::path_exists(plan.source), "{}: not a training run (recipe.toml is missing)", plan.folder);
  } else {
    plan.source = plain ? command : recipe_path(options.recipe, true);
    const bool is_recipe = plain || plan.source.ends_with(".toml") || plan.source.ends_with(".json");
    base::require(is_recipe || !base::path_exists(plan.source),
                  "{0}: {1}: expected a recipe (.toml or .json); data are given as --data {2}: mnemo {0} RECIPE --data "
                  "{2}",
                  command, base::printable(plan.source, 400), base::shell_quoted(plan.source));
    plan.folder = options.out.value_or(
        "runs/" + (plain ? options.name.value_or("task") : std::filesystem::path(options.recipe).stem().string()));
  }
  if (!plan.resumes && is_restart(plan.folder)) {
    plan.resumes = true;
    plan.source = base::join_path(plan.folder, "recipe.toml");
  }
  const std::optional<std::string> variant = plan.resumes ? std::nullopt : options.variant;
  if (plain && !plan.resumes) {
    const base::Node root = runs::plain_finetuning(*options.model, *options.data);
    plan.recipe = recipes::read_recipe(recipes::RecipeFile::of(root, plan.source, assignments).recipe(variant));
  } else {
    plan.recipe = recipes::read_recipe_file(plan.source, assignments, variant);
  }
  base::require(
      plan.recipe.finetune.has_value() == options.finetunes, "{}: {}: {}", command, plan.source,
      options.finetunes ? "has no [finetune]: expected one, or --model" : "has [finetune]; it is for mnemo finetune");
  plan.chooses_threads = common_options().threads == 0 && !sets(options, "train.threads");
  if (common_options().threads > 0) plan.recipe.train.threads = common_options().threads;
  return plan;
}

std::string command_of(const Plan& plan, const TrainArguments& options) {
  const auto file_name = [](const std::string& path) {
    return base::shell_quoted(std::filesystem::path(path).lexically_normal().filename().string());
  };
  std::string line = fmt::format("mnemo {}", options.command());
  if (plan.resumes)
    line += " --resume RUN";
  else if (!options.recipe.empty())
    line += " " + file_name(options.recipe);
  if (options.variant) line += " --variant " + base::shell_quoted(*options.variant);
  if (options.init) line += " --init " + file_name(*options.init);
  if (options.model) line += " --model " + file_name(*options.model);
  if (options.regime) line += " --regime " + base::shell_quoted(*options.regime);
  if (options.name) line += " --name " + base::shell_quoted(*options.name);
  if (options.data) line += " --data " + file_name(*options.data);
  for (const std::string& assignment : options.set) line += " --set " + base::shell_quoted(assignment);
  if (options.device) line += " --device " + *options.device;
  if (common_options().threads > 0) line += fmt::format(" --threads {}", common_options().threads);
  return line;
}

void print_result(const std::string& command, const std::string& folder, const runs::Training& training, bool json) {
  const experiment::Experiment& experiment = training.experiment;
  const train::TrainReport& report = training.report;
  if (json) {
    base::Node metrics = base::Node::table();
    for (const auto& [name, value] : training.card.metrics) metrics.set(name, base::json_number(value));
    base::print_json(base::Node::table({{"steps", report.steps},
                                        {"tokens", report.tokens},
                                        {"seconds", base::json_number(report.seconds)},
                                        {"waiting_seconds", base::json_number(report.waited)},
                                        {"tokens_per_second", base::json_number(training.speed())},
                                        {"parameters", experiment.model->parameters().count()},
                                        {"out_of_patience", report.out_of_patience},
                                        {"held_out", metrics},
                                        {"run", folder},
                                        {"model", training.model},
                                        {"checkpoint", report.checkpoint}}));
    return;
  }
  if (training.was_finished) {
    const train::TrainOptions& settings = experiment.recipe.train;
    const bool all = report.steps >= settings.steps;
    base::print(
        fmt::format("{}: finished at step {}, nothing left to train; to continue, {}: mnemo {} --resume {} --set {}\n",
                    folder, base::grouped(report.steps), all ? "raise its steps" : "change what ended it", command,
                    base::shell_quoted(folder),
                    all                 ? "train.steps=N"
                    : settings.patience ? "train.patience=unset"
                                        : "train.stop_at=unset"));
    return;
  }
  std::string text = fmt::format("{}, {} {} in {} without evaluation and saving, {} {} a second\n",
                                 base::counted(report.steps, "step"), base::grouped(report.tokens), experiment.targets,
                                 base::duration_text(report.seconds),
                                 base::grouped(static_cast<int64_t>(training.speed())), experiment.unit);
  if (report.waited > 0)
    text += fmt::format("waited {} for the gradients of other ranks\n", base::duration_text(report.waited));
  if (report.out_of_patience && training.evaluation)
    text += fmt::format(
        "out of patience: no evaluation was better than at step {}; the model has the weights of that step\n",
        base::grouped(training.evaluation->step));
  for (const auto& [name, value] : training.card.metrics) text += fmt::format("held-out {} {:.4f}\n", name, value);
  text += fmt::format("model: {}\n", training.model);
  if (experiment.recipe.train.report) text += fmt::format("report: {}\n", base::join_path(folder, "report.html"));
  if (experiment.recipe.task()->text() != nullptr && !experiment.model->sees_ahead())
    text += fmt::format("try: mnemo generate {} --prompt 'Once upon a time'\n", base::shell_quoted(training.model));
  base::print(text);
}

/// Warns of data that are of another kind than the recipe reads.
void note_kind(const std::string& data, const recipes::Recipe& recipe) {
  const std::string& reads = recipe.data.at("type").as_string();
  if (reads != tasks::TaskTypes::all().default_type) return;
  std::optional<base::Node> found;
  try {
    found = tasks::find_data(data);
  } catch (const base::InputError& error) {
    return base::log_warning("{}; it is read as plain text", error.what());
  }
  if (!found) return;
  const std::string& type = found->at("type").as_string();
  const base::Node *key = found->find("json_key"), *own = recipe.data.find("json_key");
  const bool raw = key != nullptr && own != nullptr && own->as_string().empty();
  if (type == reads && !raw) return;
  base::log_warning("{}: looks like {}, and is read as plain text; a recipe for it: mnemo init --data {}", data,
                    type == reads ? "JSON lines" : tasks::TaskTypes::all().options.meaning(type),
                    base::shell_quoted(data));
}

int train_alone(const TrainArguments& options, const Plan& plan, const std::shared_ptr<distributed::Group>& group) {
  const at::Device device = experiment::device_named(options.device, group.get());
  if (options.data && !plan.resumes && (!group || group->rank() == 0)) note_kind(*options.data, plan.recipe);
  const runs::Training training = runs::run_training(
      {.recipe = plan.recipe,
       .folder = plan.folder,
       .resumes = plan.resumes,
       .init = plan.resumes ? std::nullopt : options.init,
       .device = device,
       .command = command_of(plan, options),
       .shows_progress = !common_options().quiet,
       .group = group,
       .should_stop = pending_signal,
       .stop_guard = guard_signals,
       .on_step = note_progress,
       .choose_threads = plan.chooses_threads ? choose_threads : nullptr,
       .on_evaluation = [](const train::EvaluationPoint& point, const std::string& metric) {
         base::log_info("step {}: held-out {} {:.4f}", point.step, metric, point.evaluation.at(metric));
       }});
  const train::TrainReport& report = training.report;
  if (report.stopped != 0) {
    if (group && group->rank() != 0) return base::stopped_by(report.stopped);
    base::log_warning("stopped after step {}, saved in {}; to resume: mnemo {} --resume {}{}", report.steps,
                      report.checkpoint, options.command(), base::shell_quoted(plan.folder),
                      options.device ? " --device " + *options.device : "");
    return base::stopped_by(report.stopped);
  }
  if (group && group->rank() != 0) return base::kDone;
  if (training.task) base::log_info("task memory: {}", *training.task);
  print_result(options.command(), plan.folder, training, options.json);
  return base::kDone;
}

int run_training(const TrainArguments& options) {
  experiment::device_named(options.device);  // before anything is read or started
  const Plan plan = training_plan(options);
  return on_ranks(options.ranks, plan.folder,
                  [&](const std::shared_ptr<distributed::Group>& group) { return train_alone(options, plan, group); });
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  Command command(app, "train", "train a model from a recipe, or resume a run");
  command.argument("RECIPE", options->recipe, "recipe (TOML), or the name of one (see mnemo recipes)", false)
      .option("--data", options->data, "PATH", "training data; short for --set data.train=PATH")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe (see mnemo help recipe); may be repeated")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--out", options->out, "DIR",
              "run folder for recipe, log, checkpoints and model (default: runs/ and the name of the recipe's file)")
      .option("--init", options->init, "MODEL",
              "start from the weights of this model; its options must match the recipe's")
      .option("--resume", options->resume, "DIR",
              "resume a run from its latest checkpoint; --set may change its recipe")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)");
  add_ranks(command, options->ranks, kShare);
  command.flag("--json", options->json, "print the result as JSON")
      .footer("mnemo train text --data my.txt --out runs/mine\nmnemo train --resume runs/mine")
      .action([options] { return run_training(*options); });
}

void add_finetune(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  options->finetunes = true;
  options->ranks.command = "finetune";
  Command command(app, "finetune", "train a new task on top of a trained image model; write it as a small task file");
  command
      .argument("RECIPE", options->recipe,
                "recipe (TOML) with [finetune], or any image recipe with --model; optional with --model and --data",
                false)
      .option("--model", options->model, "MODEL",
              "model folder or run folder of the trained model; short for --set finetune.model=MODEL")
      .option(
          "--regime", options->regime, "REGIME",
          "head, head_and_class_token, memory, masked_memory, unmasked_memory, full, adapters or memory_and_adapters "
          "(default masked_memory)")
      .option("--name", options->name, "NAME", "name of the task")
      .option("--data", options->data, "DIR",
              "training images; short for --set data.train=DIR; without a recipe, any set that `mnemo data` can read")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe (see mnemo help recipe); may be repeated")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--out", options->out, "DIR",
              "run folder for recipe, log, checkpoints, model and NAME.task.safetensors (default: runs/ and the name "
              "of the recipe's file or of the task)")
      .option("--resume", options->resume, "DIR",
              "resume a run from its latest checkpoint; --set may change its recipe")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)");
  add_ranks(command, options->ranks, kShare);
  command.flag("--json", options->json, "print the result as JSON")
      .footer(
          "mnemo finetune --model models/vit --data photos --name clothes --out runs/clothes\nmnemo finetune "
          "recipes/learnable_memory_small.toml --variant 'Clothing/masked memory, 5 tokens'\nmnemo attach models/vit "
          "runs/clothes/clothes.task.safetensors")
      .action([options] { return run_training(*options); });
}

}  // namespace mnemo::cli
