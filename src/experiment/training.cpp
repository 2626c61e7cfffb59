#include "experiment/training.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "bundle/bundle.h"
#include "experiment/device.h"
#include "experiment/finetune_model.h"
#include "train/signals.h"
#include "weights/checkpoint.h"
#include "weights/model_tensors.h"

namespace mnemo::experiment {
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

void require_folder(const TrainingOptions& options) {
  if (options.resumes) {
    base::require(base::path_exists(base::join_path(options.folder, "recipe.toml")),
                  "{}: no run is there (recipe.toml is missing)", options.folder);
  } else if (base::is_folder(options.folder)) {
    if (const auto checkpoint = weights::latest_checkpoint(options.folder)) {
      base::input_error(
          "{0}: a run is there already, up to step {1}; go on with it: mnemo {2} --resume {0}, or choose another --out",
          options.folder, checkpoint->step, options.recipe.finetune ? "finetune" : "train");
    }
  }
}

/// Weights of another model in place of fresh ones.
void start_from(const std::string& path, Experiment& experiment) {
  const bundle::Bundle stored = bundle::read_bundle(path);
  const bool same_tokens = (stored.tokenizer == nullptr) == (experiment.tokenizer == nullptr) &&
                           (stored.tokenizer == nullptr || stored.tokenizer->save() == experiment.tokenizer->save());
  base::require(same_tokens,
                "train: --init {}: its vocabulary is not that of the recipe's data, so its tokens would mean others",
                stored.folder);
  weights::TensorFile file;
  file.tensors = weights::model_tensors(*stored.model);
  weights::load_model_tensors(file, *experiment.model, stored.folder);
}

void finish(const TrainingOptions& options, Training& training) {
  const Recipe& recipe = training.experiment.recipe;
  training.card = {.title = recipe.name.empty() ? "A model with memory" : recipe.name,
                   .command = options.command,
                   .metrics = {},
                   .steps = training.report.steps,
                   .tokens = training.report.tokens,
                   .seconds = training.report.seconds};
  const auto& evaluations = training.report.history.evaluations;
  if (!evaluations.empty()) training.card.metrics = evaluations.back().evaluation.metrics;
  training.model = base::join_path(options.folder, "model");
  write_model(training.model, training.experiment, training.card);
  if (training.experiment.finetune) {
    training.task = write_task(options.folder, *training.experiment.model, *training.experiment.finetune,
                               fmt::format("{}; {}", options.command, recipe.finetune->regime));
  }
}

}  // namespace

double Training::speed() const {
  const double processed = static_cast<double>(experiment.tokens_per_step) * static_cast<double>(report.steps);
  return report.seconds > 0 ? processed / report.seconds : 0;
}

Training run_training(const TrainingOptions& options) {
  require_folder(options);
  Training training{.experiment = make_experiment(options.recipe), .report = {}, .card = {}, .model = {}};
  Experiment& experiment = training.experiment;
  if (options.init) start_from(*options.init, experiment);
  move_to(*experiment.model, options.device);
  // Part of the recipe from now on: another number of threads would not resume bit for bit.
  Recipe recipe = options.recipe;
  if (recipe.train.threads == 0 && options.choose_threads) {
    const bool images = recipe.task()->input() == tasks::InputKind::images;
    recipe.train.threads = options.choose_threads(experiment.model->parameters().count(),
                                                  experiment.tokens_per_step * (images ? kRowsOfAnImage : 1));
    experiment.recipe.train.threads = recipe.train.threads;
  }
  base::make_folders(options.folder);
  base::write_file_atomic(base::join_path(options.folder, "recipe.toml"), base::to_toml(base::write_options(recipe)));

  std::optional<train::SignalGuard> guard;
  if (options.stops_at_signals) guard.emplace();
  train::Trainer trainer(*experiment.model, *experiment.task, experiment.recipe.train, options.folder);
  if (options.resumes && trainer.resume_latest()) base::log_info("goes on after step {}", trainer.steps_done());
  const int64_t threads = recipe.train.threads;
  base::log_info("{} parameters, {} steps, {}, into {}", base::grouped(experiment.model->parameters().count()),
                 recipe.train.steps,
                 threads == 0   ? "LibTorch's number of threads"
                 : threads == 1 ? "one thread"
                                : fmt::format("{} threads", threads),
                 options.folder);
  train::RunHooks hooks;
  hooks.show_progress = options.shows_progress;
  if (options.on_evaluation) {
    hooks.on_evaluation = [&](const train::EvaluationPoint& point) {
      options.on_evaluation(point, experiment.task->metric());
    };
  }
  training.report = trainer.run(hooks);
  if (training.report.signal != 0) return training;
  trainer.take_average();
  finish(options, training);
  return training;
}

base::Node plain_finetuning(const std::string& model, const std::string& data) {
  std::optional<base::Node> images = tasks::find_data(std::filesystem::absolute(data).lexically_normal().string());
  base::require(images.has_value(), "{}: expected the folder of an image set, found nothing", data);
  const base::Node reads = base::write_options(bundle::ImagePreprocessing::read(bundle::model_folder(model)));
  for (const auto& [key, value] : reads.members()) images->set(key, value);
  images->set("augment", base::Node::table({{"scale", base::Node::array({0.5, 1.0})}}));
  base::Node root = base::Node::table(
      {{"data", std::move(*images)}, {"finetune", base::Node::table({{"model", model}})}});
  const base::Node train = base::parse_toml(kPlainTraining, "finetune");
  root.set("train", train);
  return root;
}

}  // namespace mnemo::experiment
