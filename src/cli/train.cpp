#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "bundle/preprocessing.h"
#include "cli/application.h"
#include "cli/command.h"
#include "data/images/image_describe.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "experiment/finetune_model.h"
#include "study/summary.h"
#include "train/signals.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"
#include "weights/model_tensors.h"

namespace mnemo::cli {
namespace {

/// Sandler et al. 2022, section 4.1, in short: SGD with momentum, a cosine after 5 steps of warm-up.
constexpr const char* kPlainTraining = R"(
steps = 500
batch_size = 32
shuffle = true
clip_norm = 1.0
optimiser = { type = "sgd", lr = 0.05, momentum = 0.9 }
schedule = { type = "cosine", warmup_steps = 5, final_factor = 0.0 }
eval_every = 100
eval_samples = 1000
)";

struct TrainArguments {
  std::string recipe;
  std::optional<std::string> resume, out, data, variant, device, init;
  std::vector<std::string> set;
  bool json = false;
  bool finetunes = false;  ///< mnemo finetune
  std::optional<std::string> model, regime, name;
  const char* command() const { return finetunes ? "finetune" : "train"; }
};

/// Where a run goes and what it is made from.
struct Plan {
  std::string folder, source;
  experiment::Recipe recipe;
  bool resumes = false;
};

/// A task without a recipe: images as the model reads them, and settings that suit a few thousand photos.
base::Node plain_finetuning(const TrainArguments& options) {
  data::ImageOptions found = data::detect_images(std::filesystem::absolute(*options.data).lexically_normal().string());
  const bundle::ImagePreprocessing facts = bundle::ImagePreprocessing::read(experiment::model_folder(*options.model));
  found.image_size = facts.image_size;
  found.mean = facts.mean;
  found.std = facts.std;
  found.test_crop = facts.test_crop;
  found.augment.scale = {0.5, 1.0};
  base::Node data = base::write_options(found);
  data.set("type", "images");
  base::Node root = base::Node::table(
      {{"data", std::move(data)}, {"finetune", base::Node::table({{"model", *options.model}})}});
  const base::Node train = base::parse_toml(kPlainTraining, "finetune");
  root.set("train", train);
  return root;
}

Plan plan_of(const TrainArguments& options) {
  const char* command = options.command();
  const bool plain = options.finetunes && options.recipe.empty() && !options.resume && options.model && options.data;
  base::require(plain || options.recipe.empty() != !options.resume.has_value(),
                "{}: expected a RECIPE, {}or --resume DIR to go on with a run, found {}", command,
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
    base::require(!options.init, "{}: --resume goes on with the run's own weights; drop --init", command);
    base::require(!options.out && !options.variant, "{}: --resume goes on in the run's own folder; drop {}", command,
                  options.out ? "--out" : "--variant");
    plan.folder = *options.resume;
    plan.source = base::join_path(plan.folder, "recipe.toml");
    base::require(base::path_exists(plan.source), "{}: no run is there (recipe.toml is missing)", plan.folder);
  } else {
    plan.source = plain ? command : options.recipe;
    plan.folder = options.out.value_or(
        "runs/" + (plain ? options.name.value_or("task") : std::filesystem::path(options.recipe).stem().string()));
  }
  plan.recipe = experiment::read_recipe(
      (plain ? experiment::RecipeFile::of(plain_finetuning(options), plan.source, assignments)
             : experiment::RecipeFile::read(plan.source, assignments))
          .recipe(options.variant));
  base::require(
      plan.recipe.finetune.has_value() == options.finetunes, "{}: {}: {}", command, plan.source,
      options.finetunes ? "has no [finetune]: expected one, or --model" : "has [finetune]; it is for mnemo finetune");
  if (common_options().threads > 0) plan.recipe.train.threads = common_options().threads;
  if (plan.resumes || !base::is_folder(plan.folder)) return plan;
  if (const auto checkpoint = weights::latest_checkpoint(plan.folder)) {
    base::input_error(
        "{0}: a run is there already, up to step {1}; go on with it: mnemo {2} --resume {0}, or choose another --out",
        plan.folder, checkpoint->step, options.command());
  }
  return plan;
}

std::string command_of(const Plan& plan, const TrainArguments& options) {
  const auto file_name = [](const std::string& path) {
    return std::filesystem::path(path).lexically_normal().filename().string();
  };
  std::string line = fmt::format("mnemo {}", options.command());
  if (plan.resumes)
    line += " --resume RUN";
  else if (!options.recipe.empty())
    line += " " + file_name(options.recipe);
  if (options.variant) line += fmt::format(" --variant '{}'", *options.variant);
  if (options.init) line += " --init " + file_name(*options.init);
  if (options.model) line += " --model " + file_name(*options.model);
  if (options.regime) line += " --regime " + *options.regime;
  if (options.name) line += " --name " + *options.name;
  if (options.data) line += " --data " + file_name(*options.data);
  for (const std::string& assignment : options.set) line += fmt::format(" --set '{}'", assignment);
  return line;
}

void print_result(const Plan& plan, const experiment::Experiment& bench, const train::TrainReport& report,
                  const experiment::ModelCard& card, bool json) {
  const double processed = static_cast<double>(bench.tokens_per_step) * static_cast<double>(report.steps);
  const double speed = report.seconds > 0 ? processed / report.seconds : 0;
  const std::string model = base::join_path(plan.folder, "model");
  if (json) {
    base::Node metrics = base::Node::table();
    for (const auto& [name, value] : card.metrics) metrics.set(name, base::json_number(value));
    base::print_json(base::Node::table({{"steps", report.steps},
                                        {"tokens", report.tokens},
                                        {"seconds", base::json_number(report.seconds)},
                                        {"tokens_per_second", base::json_number(speed)},
                                        {"parameters", bench.model->parameters().count()},
                                        {"held_out", metrics},
                                        {"run", plan.folder},
                                        {"model", model},
                                        {"checkpoint", report.checkpoint}}));
    return;
  }
  std::string text = fmt::format("{0} steps, {1} {4}, {2}, {3} {4} a second\n", base::grouped(report.steps),
                                 base::grouped(report.tokens), base::duration_text(report.seconds),
                                 base::grouped(static_cast<int64_t>(speed)), bench.unit);
  for (const auto& [name, value] : card.metrics) text += fmt::format("held-out {} {:.4f}\n", name, value);
  text += fmt::format("model: {}\n", model);
  if (bench.tokenizer) text += fmt::format("try: mnemo generate {} --prompt 'Once upon a time'\n", model);
  base::print(text);
}

/// Weights of another model in place of fresh ones.
void start_from(const std::string& path, experiment::Experiment& bench) {
  const std::string folder = experiment::model_folder(path);
  const experiment::StoredModel stored = experiment::read_model(folder);
  const bool same_tokens = (stored.tokenizer == nullptr) == (bench.tokenizer == nullptr) &&
                           (stored.tokenizer == nullptr || stored.tokenizer->save() == bench.tokenizer->save());
  base::require(same_tokens,
                "train: --init {}: its vocabulary is not that of the recipe's data, so its tokens would mean others",
                folder);
  weights::TensorFile file;
  file.tensors = weights::model_tensors(*stored.model);
  weights::load_model_tensors(file, *bench.model, folder);
}

int run_training(const TrainArguments& options) {
  const at::Device device = experiment::device_named(options.device);
  Plan plan = plan_of(options);
  experiment::Experiment bench = experiment::make_experiment(plan.recipe);
  if (options.init) start_from(*options.init, bench);
  experiment::move_to(*bench.model, device);
  // Part of the recipe from now on: another number of threads would not resume bit for bit.
  if (plan.recipe.train.threads == 0) {
    plan.recipe.train.threads = choose_threads(bench.model->parameters().count(),
                                               bench.tokens_per_step * (plan.recipe.is_images() ? kRowsOfAnImage : 1));
    bench.recipe.train.threads = plan.recipe.train.threads;
  }
  base::make_folders(plan.folder);
  base::write_file_atomic(base::join_path(plan.folder, "recipe.toml"), base::to_toml(base::write_options(plan.recipe)));

  const train::SignalGuard guard;
  train::Trainer trainer(*bench.model, *bench.task, bench.recipe.train, plan.folder);
  if (plan.resumes && trainer.resume_latest()) base::log_info("resuming after step {}", trainer.steps_done());
  const int64_t threads = plan.recipe.train.threads;
  base::log_info("{} parameters, {} steps, {}, into {}", base::grouped(bench.model->parameters().count()),
                 plan.recipe.train.steps, threads == 1 ? "one thread" : fmt::format("{} threads", threads),
                 plan.folder);
  const std::string metric = bench.task->metric();
  train::RunHooks hooks;
  hooks.show_progress = !common_options().quiet;
  hooks.on_evaluation = [&](const train::EvaluationPoint& point) {
    base::log_info("step {}: held-out {} {:.4f}", point.step, metric, point.evaluation.at(metric));
  };
  const train::TrainReport report = trainer.run(hooks);
  if (report.signal != 0) {
    base::log_warning("stopped after step {}, saved in {}; to go on: mnemo {} --resume {}", report.steps,
                      report.checkpoint, options.command(), plan.folder);
    return report.signal == SIGINT ? base::kInterrupted : base::kTerminated;
  }
  trainer.take_average();
  experiment::ModelCard card{.title = plan.recipe.name.empty() ? "A model with memory" : plan.recipe.name,
                             .command = command_of(plan, options),
                             .metrics = {},
                             .steps = report.steps,
                             .tokens = report.tokens,
                             .seconds = report.seconds};
  if (!report.history.evaluations.empty()) card.metrics = report.history.evaluations.back().evaluation.metrics;
  experiment::write_model(base::join_path(plan.folder, "model"), bench, card);
  if (bench.finetune) {
    const std::string about = fmt::format("{}; {}", card.command, plan.recipe.finetune->regime);
    if (const auto path = experiment::write_task(plan.folder, models::require_vision_model(*bench.model, "finetune"),
                                                 *bench.finetune, about)) {
      base::log_info("task memory: {}", *path);
    }
  }
  print_result(plan, bench, report, card, options.json);
  return base::kDone;
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  Command(app, "train", "train a model from a recipe, or resume a run")
      .argument("RECIPE", options->recipe, "recipe (TOML), such as recipes/text.toml", false)
      .option("--data", options->data, "FILE", "training text; short for --set data.train=FILE")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe (see mnemo help recipe); may be repeated")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--out", options->out, "DIR",
              "run folder for recipe, log, checkpoints and model (default: runs/ and the recipe's name)")
      .option("--init", options->init, "MODEL",
              "start from the weights of this model; its options must match the recipe's")
      .option("--resume", options->resume, "DIR",
              "resume a run from its latest checkpoint; --set may change its recipe")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", options->json, "print the result as JSON")
      .footer("mnemo train recipes/text.toml --data my.txt --out runs/mine\nmnemo train --resume runs/mine")
      .action([options] { return run_training(*options); });
}

void add_finetune(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  options->finetunes = true;
  Command(app, "finetune", "train a new task on top of a trained image model; write it as a small task file")
      .argument("RECIPE", options->recipe,
                "recipe (TOML) with [finetune], or any image recipe with --model; optional with --model and --data",
                false)
      .option("--model", options->model, "MODEL",
              "model folder or run folder of the trained model; short for --set finetune.model=MODEL")
      .option("--regime", options->regime, "REGIME",
              "head, head_and_class_token, memory, masked_memory, full or adapters (default masked_memory)")
      .option("--name", options->name, "NAME", "name of the task")
      .option("--data", options->data, "DIR",
              "training images; short for --set data.train=DIR; without a recipe, any set that `mnemo data` can read")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe (see mnemo help recipe); may be repeated")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--out", options->out, "DIR",
              "run folder for recipe, log, checkpoints, model and NAME.task.safetensors (default: runs/ and the name "
              "of the recipe or task)")
      .option("--resume", options->resume, "DIR",
              "resume a run from its latest checkpoint; --set may change its recipe")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", options->json, "print the result as JSON")
      .footer(
          "mnemo finetune --model models/vit --data photos --name clothes --out runs/clothes\nmnemo finetune "
          "recipes/learnable_memory_small.toml --variant 'Clothing/masked memory, 5 tokens'\nmnemo attach models/vit "
          "runs/mine/clothing.task.safetensors")
      .action([options] { return run_training(*options); });
}

}  // namespace mnemo::cli
