#include "runs/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "bundle/add_memory.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/model_folder.h"
#include "experiment/device.h"
#include "experiment/finetune_model.h"
#include "models/model.h"
#include "models/presets.h"
#include "runs/run_record.h"
#include "runs/run_samples.h"
#include "weights/checkpoint.h"
#include "weights/lora.h"
#include "weights/task_memory.h"

namespace mnemo::runs {
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

constexpr const char* kCommandFile = "command.txt";

std::string program_of(const TrainingOptions& options) {
  return options.recipe.finetune ? "mnemo finetune" : "mnemo train";
}

std::string resume_command(const TrainingOptions& options) {
  return program_of(options) + " --resume " + base::shell_quoted(options.folder);
}

/// Whether `mnemo compare` writes its report and its trainings here.
bool is_comparison(const std::string& folder) {
  if (base::path_exists(base::join_path(folder, "results.json"))) return true;
  const std::string runs = base::join_path(folder, "runs");
  if (!base::is_folder(runs)) return false;
  const std::vector<std::string> names = base::list_folder(runs);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return base::path_exists(base::join_path(base::join_path(runs, name), "job.json"));
  });
}

void require_folder(const TrainingOptions& options) {
  const std::string& folder = options.folder;
  base::require(!folder.empty(), "{}: --out: expected a folder, found ''", program_of(options));
  if (options.resumes) {
    base::require(base::path_exists(base::join_path(folder, "recipe.toml")),
                  "{}: not a training run (recipe.toml is missing)", folder);
    return;
  }
  if (!base::is_folder(folder)) return;
  base::require(!is_comparison(folder), "{}: already holds a comparison; choose another --out", folder);
  if (const auto checkpoint = weights::latest_checkpoint(folder)) {
    base::input_error("{}: already holds a run, up to step {}; resume it: {} --resume {}, or choose another --out",
                      folder, checkpoint->step, program_of(options), base::shell_quoted(folder));
  }
  base::require(!base::path_exists(base::join_path(folder, "model")) && !weights::has_checkpoints(folder),
                "{}: already holds a run, without an intact checkpoint; remove it, or choose another --out", folder);
}

/// The first key that differs, with both values; empty if none does.
std::string difference(const base::Node& before, const base::Node& now, const std::string& path) {
  if (before == now) return {};
  if (!before.is_table() || !now.is_table())
    return fmt::format("'{}': expected {}, found {}", path, base::to_json(before, -1), base::to_json(now, -1));
  for (const auto& [key, value] : now.members()) {
    const base::Node* other = before.find(key);
    const std::string found = difference(other == nullptr ? base::Node() : *other, value,
                                         path.empty() ? key : path + "." + key);
    if (!found.empty()) return found;
  }
  return fmt::format("'{}': expected {}, found {}", path, base::to_json(before, -1), base::to_json(now, -1));
}

/// A checkpoint goes on with its own model and data. Checkpoints of earlier versions do not say what these are.
void require_same_run(const std::string& checkpoint, const experiment::Experiment& experiment) {
  const std::map<std::string, std::string> files = experiment::model_files(experiment);
  std::vector<std::string> names = {std::string(text::Tokenizer::kFile), bundle::kClassesFile};
  for (const auto& [name, content] : experiment.files) names.push_back(name);
  for (const std::string& name : names) {
    const std::string path = base::join_path(checkpoint, name);
    const auto now = files.find(name);
    base::require(
        !base::path_exists(path) || (now != files.end() && base::read_file(path) == now->second),
        "{}: the data of the recipe are not those of the run (data.train): another {}; resume with the run's own "
        "data, or train a new run with these (--out OTHER)",
        path, name);
  }
  const std::string path = base::join_path(checkpoint, bundle::kConfigFile);
  if (!base::path_exists(path)) return;
  const auto before = models::read_model_options(base::parse_json(base::read_file(path), path));
  const std::string found = difference(base::write_options(before), base::write_options(experiment.recipe.model),
                                       "model");
  base::require(found.empty(),
                "{}: another model than that of the run: {}; to start a new run from its weights: --init {}", path,
                found, base::shell_quoted(base::parent_folder(checkpoint)));
}

void resume(const TrainingOptions& options, const experiment::Experiment& experiment, train::Trainer& trainer) {
  const auto latest = weights::latest_checkpoint(options.folder);
  base::require(latest.has_value(), "{}: no good checkpoint to resume from; to start again: {} {} --out OTHER",
                options.folder, program_of(options),
                base::shell_quoted(base::join_path(options.folder, "recipe.toml")));
  if (options.group) options.group->require_same({{"newest checkpoint", std::to_string(latest->step)}}, "resume");
  require_same_run(latest->path, experiment);
  trainer.resume(latest->path);
  if (!trainer.done()) base::log_info("resuming after step {}", trainer.steps_done());
}

/// Other settings would be written down as those of a run that they did not make.
void require_same_settings(const TrainingOptions& options, const train::Trainer& trainer) {
  const recipes::Recipe own = recipes::read_recipe_file(base::join_path(options.folder, "recipe.toml"));
  // A run that was killed may end where it is, with fewer steps.
  if (trainer.steps_done() < own.train.steps && !own.train.stop_at && !own.train.patience) return;
  base::Node before = base::write_options(own), now = base::write_options(options.recipe);
  for (base::Node* node : {&before, &now}) {
    node->find("train")->set("threads", 0);
    for (const char* key : {"name", "about", "generate"}) node->erase(key);
  }
  const std::string found = difference(before, now, "");
  const bool all_steps = trainer.steps_done() >= own.train.steps;
  base::require(
      found.empty(),
      "{}: the run is finished, at step {}, so no step is left for other settings; expected {}, or none changed, "
      "found {}",
      options.folder, trainer.steps_done(),
      all_steps ? "train.steps above that" : "another train.patience or train.stop_at, or \"unset\"", found);
}

/// The model would be written without the tasks that were attached to it in its folder.
void require_no_other_tasks(const std::string& model, const models::ModelOptions& own) {
  if (!base::path_exists(base::join_path(model, bundle::kConfigFile))) return;
  const models::ModelOptions there = models::read_model_options(bundle::model_table(model));
  base::require(weights::tasks_of(there).tasks.size() <= weights::tasks_of(own).tasks.size(),
                "{}: tasks are attached to this model, and the run would write it without them; detach them, or move "
                "the folder away",
                model);
}

/// The commands that made the run, a line each, with this one.
std::string commands(const TrainingOptions& options) {
  const std::string path = base::join_path(options.folder, kCommandFile), line = options.command + "\n";
  const std::string before = options.resumes && base::path_exists(path) ? base::read_file(path, 1 << 20) : "";
  return before.ends_with(line) ? before : before + line;
}

/// The experiment of the recipe, or with --init of the recipe with that `init`, which has to give all weights but those
/// of another number of classes.
experiment::Experiment started(const TrainingOptions& options) {
  if (!options.init) return experiment::make_experiment(options.recipe);
  recipes::Recipe recipe = options.recipe;
  recipe.init = options.init;
  experiment::Experiment made = experiment::make_experiment(recipe);
  for (const std::string& name : made.fresh) {
    base::require(name.starts_with("head.classifier."),
                  "train: --init: {} has no '{}'; to train on with fresh weights there: --set init={}, to take its "
                  "options too: --set model.from={}",
                  *options.init, name, base::shell_quoted(*options.init), base::shell_quoted(*options.init));
  }
  made.recipe.init = options.recipe.init;
  return made;
}

void finish(const TrainingOptions& options, Training& training) {
  const recipes::Recipe& recipe = training.experiment.recipe;
  training.card = {.title = recipe.name.empty() ? "A model with memory" : recipe.name,
                   .command = base::read_file(base::join_path(options.folder, kCommandFile)),
                   .metrics = {},
                   .steps = training.report.steps,
                   .tokens = training.report.tokens,
                   .seconds = training.report.seconds};
  if (training.evaluation) training.card.metrics = training.evaluation->evaluation.metrics;
  training.model = base::join_path(options.folder, "model");
  experiment::write_model(training.model, training.experiment, training.card);
  if (training.experiment.finetune) {
    training.task = experiment::write_task(
        options.folder, *training.experiment.model, *training.experiment.finetune,
        fmt::format("{}; {}", training.card.command.substr(0, training.card.command.find('\n')),
                    recipe.finetune->regime_name()));
  }
}

/// Adds to a file of LoRA what model it is for, so that it can be merged without its recipe.
void describe_lora(const std::string& path, const recipes::Recipe& recipe, const experiment::Experiment& experiment) {
  if (!recipe.train.lora) return;
  weights::TensorFile file = weights::read_safetensors(path);
  file.metadata[weights::kLoraRest] = weights::digest_of_rest(file, experiment.model->parameters().named());
  file.metadata[weights::kLoraModel] = base::to_json(base::write_options(experiment.recipe.model), -1);
  if (recipe.init) file.metadata[weights::kLoraBase] = std::filesystem::path(*recipe.init).filename().string();
  weights::write_safetensors(path, file.tensors, file.metadata);
}

/// Refuses ranks that would train something else.
void require_same_ranks(const TrainingOptions& options, const experiment::Experiment& experiment,
                        const recipes::Recipe& recipe) {
  std::string data;
  for (const auto& [name, tensor] : experiment.task->save()) {
    const at::Tensor plain = tensor.contiguous();
    data += name + std::string(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  for (const auto& [name, content] : experiment::model_files(experiment)) data += name + content;
  auto entries = distributed::program_entries();
  entries.emplace_back("recipe", base::sha256(base::to_toml(base::write_options(recipe))));
  entries.emplace_back("data", base::sha256(data));
  entries.emplace_back("set of weights to begin with", weights_sha256(*experiment.model));
  options.group->require_same(entries, program_of(options));
}

}  // namespace

double tokens_per_second(const experiment::Experiment& experiment, const train::TrainReport& report) {
  // Of pairs a batch may have any number of tokens up to tokens_per_step; those of the targets are counted.
  const int64_t processed = std::holds_alternative<core::PairInput>(experiment.model->input())
                                ? report.tokens
                                : experiment.tokens_per_step * report.steps;
  return report.seconds > 0 ? static_cast<double>(processed) / report.seconds : 0;
}

double Training::speed() const { return tokens_per_second(experiment, report); }

namespace {

/// The recipe with what is chosen for the model: the parameters to train and the number of threads, the same on every
/// rank. Others would not resume bit for bit.
recipes::Recipe settled(const TrainingOptions& options, experiment::Experiment& experiment) {
  recipes::Recipe recipe = options.recipe;
  recipe.train.only = experiment.recipe.train.only;
  int64_t& threads = recipe.train.threads;
  // A resumed run has those that its first processes chose.
  const bool resumed = threads != 0 && options.resumes && options.group;
  if ((threads != 0 && !resumed) || !options.choose_threads) return recipe;
  if (!resumed)
    threads = options.choose_threads(experiment.model->parameters().count(),
                                     experiment.tokens_per_step * recipe.task()->rows_of_each());
  if (options.group) {
    const int64_t here = options.group->place().local_size,
                  mine = resumed ? std::min(threads, base::usable_cores() / here) : threads / here;
    threads = std::stoll(options.group->broadcast(std::to_string(std::max<int64_t>(1, mine))));
  }
  experiment.recipe.train.threads = recipe.train.threads;
  return recipe;
}

void say_start(const experiment::Experiment& experiment, const recipes::Recipe& recipe, const std::string& folder) {
  const int64_t threads = recipe.train.threads;
  base::log_info("{}, {}, {}, into {}", base::counted(experiment.model->parameters().count(), "parameter"),
                 base::counted(recipe.train.steps, "step"),
                 threads == 0   ? "LibTorch's number of threads"
                 : threads == 1 ? "one thread"
                                : fmt::format("{} threads", threads),
                 folder);
}

}  // namespace

Training run_training(const TrainingOptions& options) {
  require_folder(options);
  require_samples_fit(options.recipe);
  base::require(!options.init || !options.recipe.train.lora,
                "train: --init: LoRA needs its base weights named in the recipe; expected init = \"{}\" in the "
                "recipe (--set init=...)",
                options.init.value_or(""));
  Training training{.experiment = started(options), .report = {}, .card = {}, .model = {}};
  experiment::Experiment& experiment = training.experiment;
  // A run that is resumed has them in its recipe.
  experiment::settle_fresh(experiment, !options.resumes);
  if (options.group == nullptr || options.group->rank() == 0) {
    for (const std::string& notice : experiment.notices) base::log_warning("{}", notice);
  }
  experiment::RanksHere ranks;
  if (options.group) ranks = {options.group->size(), options.group->place().local_size};
  if (options.device.is_cpu()) experiment::require_step_fits(experiment, base::usable_memory(), ranks);
  experiment::move_to(*experiment.model, options.device);
  const recipes::Recipe recipe = settled(options, experiment);
  if (options.group) require_same_ranks(options, experiment, recipe);
  const bool writes = options.group == nullptr || options.group->rank() == 0;
  train::Trainer trainer(*experiment.model, *experiment.task, experiment.recipe.train, options.folder,
                         experiment::model_files(experiment), options.group);
  base::make_folders(options.folder);
  std::optional<base::FolderLock> lock;
  if (writes) lock.emplace(options.folder);
  const std::shared_ptr<void> guard = options.stop_guard ? options.stop_guard() : nullptr;
  // Nothing in the folder changes before the checkpoint has been read.
  if (options.resumes) {
    resume(options, experiment, trainer);
    if (trainer.done()) require_same_settings(options, trainer);
    training.was_finished = trainer.done();
    require_no_other_tasks(base::join_path(options.folder, "model"), experiment.recipe.model);
  } else {
    require_folder(options);  // again: another process may have had the folder meanwhile
  }
  if (writes) {
    base::write_file_atomic(base::join_path(options.folder, "recipe.toml"), base::to_toml(base::write_options(recipe)));
    base::write_file_atomic(base::join_path(options.folder, kCommandFile), commands(options));
  }
  if (!training.was_finished) say_start(experiment, recipe, options.folder);
  train::RunHooks hooks;
  hooks.show_progress = options.shows_progress && writes;
  hooks.should_stop = options.should_stop;
  hooks.on_step = [&](int64_t done, int64_t saved) {
    if (lock) lock->require_same_folder();  // a checkpoint would make another folder under its name
    if (options.on_step) options.on_step(done, saved);
  };
  if (options.on_evaluation) {
    hooks.on_evaluation = [&](const train::EvaluationPoint& point) {
      options.on_evaluation(point, experiment.task->metric());
    };
  }
  std::optional<RunRecord> record;
  if (writes) {
    const std::string command = base::read_file(base::join_path(options.folder, kCommandFile));
    record.emplace(experiment, trainer, options.folder, *lock,
                   RunWords{.command = command.substr(0, command.size() - 1), .resume = resume_command(options)});
    record->listen(hooks);
  }
  training.report = trainer.run(hooks);
  if (training.report.stopped != 0) {
    if (record) record->stopped(training.report);
  } else if (writes) {
    if (const train::EvaluationPoint* shown = trainer.take_best()) training.evaluation = *shown;
    trainer.take_average();
    trainer.write_lora(base::join_path(options.folder, weights::kLoraFile));
    describe_lora(base::join_path(options.folder, weights::kLoraFile), recipe, experiment);
    finish(options, training);
    record->finished(training.report, training.evaluation);
  }
  if (options.group) options.group->leave();
  return training;
}

std::string weights_sha256(const core::Model& model) {
  base::Sha256 sum;
  for (const auto& [name, tensor] : model.parameters().named()) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    sum.update(name);
    sum.update(plain.const_data_ptr(), plain.nbytes());
  }
  return sum.hex();
}

base::Node plain_finetuning(const std::string& model, const std::string& data) {
  std::optional<base::Node> images = tasks::find_data(std::filesystem::absolute(data).lexically_normal().string());
  base::require(images && tasks::task_spec(*images)->classifies_images(),
                "{}: expected the folder of an image set, found {}", data,
                images ? tasks::task_spec(*images)->title() : "nothing");
  const auto known = bundle::ImagePreprocessing::find(bundle::find_model_folder(model));
  const base::Node reads = base::write_options(known ? *known : bundle::read_bundle(model).preprocessing());
  for (const auto& [key, value] : reads.members()) images->set(key, value);
  images->set("augment", base::Node::table({{"scale", base::Node::array({0.5, 1.0})}}));
  base::Node root = base::Node::table(
      {{"data", std::move(*images)}, {"finetune", base::Node::table({{"model", model}})}});
  const base::Node train = base::parse_toml(kPlainTraining, "finetune");
  root.set("train", train);
  return root;
}

}  // namespace mnemo::runs
