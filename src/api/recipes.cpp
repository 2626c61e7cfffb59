#include <filesystem>

#include "base/file_io.h"
#include "base/log.h"
#include "experiment/device.h"
#include "mnemo.h"
#include "models/model.h"
#include "runs/training.h"
#include "study/run_comparison.h"

namespace mnemo {
namespace {

Training run_recipe(const std::string& recipe, const std::string& folder, const TrainOptions& options, bool resumes,
                    const std::string& command) {
  const std::optional<std::string> variant = options.variant.empty() ? std::nullopt
                                                                     : std::optional<std::string>(options.variant);
  const Watching watching(options.watch);
  runs::TrainingOptions how;
  how.recipe = recipes::read_recipe_file(recipe, options.set, variant);
  how.folder = folder;
  how.resumes = resumes;
  if (!options.init.empty()) how.init = options.init;
  how.device = experiment::device_named(options.device);
  how.command = command;
  how.shows_progress = static_cast<bool>(base::console()->on_progress);
  how.should_stop = options.watch.should_stop;
  if (options.on_evaluation) {
    how.on_evaluation = [&](const train::EvaluationPoint& point, const std::string&) {
      options.on_evaluation(point.step, point.evaluation.metrics);
    };
  }
  runs::Training done = runs::run_training(how);
  return {.folder = folder,
          .model = done.model,
          .task = done.task.value_or(""),
          .steps = done.report.steps,
          .tokens = done.report.tokens,
          .parameters = done.experiment.model->parameters().count(),
          .seconds = done.report.seconds,
          .metrics = std::move(done.card.metrics),
          .stopped = done.report.stopped != 0};
}

}  // namespace

Training train_model(const std::string& recipe, const TrainOptions& options) {
  const std::filesystem::path path(recipe);
  return run_recipe(recipe, options.out.empty() ? "runs/" + path.stem().string() : options.out, options, false,
                    "mnemo::train_model(\"" + path.filename().string() + "\")");
}

Training resume_training(const std::string& run, const TrainOptions& options) {
  base::require(options.out.empty() && options.variant.empty() && options.init.empty(),
                "resume_training: a run resumes in its own folder with its own weights; expected out, variant and "
                "init to be empty");
  const std::string recipe = base::join_path(run, "recipe.toml");
  base::require(base::path_exists(recipe), "{}: not a training run (recipe.toml is missing)", run);
  return run_recipe(recipe, run, options, true, "mnemo::resume_training(RUN)");
}

Comparison compare_models(const std::string& recipe, const CompareOptions& options) {
  const Watching watching(options.watch);
  study::ComparisonOptions how{.recipe = recipe, .set = options.set, .out = options.out};
  if (options.seeds != 0) how.seeds = options.seeds;
  if (options.jobs != 0) how.jobs = options.jobs;
  if (options.device != "cpu") how.device = options.device;
  how.command = "mnemo::compare_models(\"" + std::filesystem::path(recipe).filename().string() + "\")";
  how.here = options.program.empty();
  how.program = options.program;
  how.should_stop = options.watch.should_stop;
  const study::ComparisonOutcome outcome = study::run_comparison(how);
  Comparison comparison{.folder = outcome.folder, .report = outcome.report, .text = {}, .json = {}};
  comparison.stopped = outcome.stopped != 0;
  comparison.complete = !comparison.stopped && outcome.status == 0;
  if (comparison.stopped) return comparison;
  for (const study::StudyGrid& study : outcome.comparison.studies) comparison.text += "\n" + study::study_text(study);
  comparison.json = base::to_json(to_node(outcome.comparison), 1) + "\n";
  return comparison;
}

}  // namespace mnemo
