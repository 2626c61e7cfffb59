#include "runs/run_record.h"

#include <fmt/format.h>

#include "base/file_io.h"
#include "base/text_format.h"
#include "models/model.h"

namespace mnemo::runs {
namespace {

RunPageContent page_content(const experiment::Experiment& experiment, const train::Trainer& trainer,
                            const std::string& folder, const RunWords& words) {
  const recipes::Recipe& recipe = experiment.recipe;
  const auto task = recipe.task();
  RunPageContent content;
  content.title = !words.title.empty() ? words.title : recipe.name.empty() ? "A training" : recipe.name;
  content.about = recipe.about;
  content.folder = folder;
  content.command = words.command;
  content.resume = words.resume;
  content.first_step = trainer.steps_done();
  content.steps = recipe.train.steps;
  content.parameters = experiment.model->parameters().count();
  content.threads = recipe.train.threads;
  content.seed = recipe.train.seed;
  content.device = core::device_of(*experiment.model).str();
  content.counted = task->targets();
  content.metric = task->metric_named(experiment.task->metric());
  content.loss_in_metric = experiment.task->metric_of_loss(1.0).has_value();
  content.recipe = base::to_toml(base::write_options(recipe));
  return content;
}

}  // namespace

RunRecord::RunRecord(const experiment::Experiment& experiment, const train::Trainer& trainer, const std::string& folder,
                     const base::FolderLock& lock, const RunWords& words)
    : experiment_(experiment),
      picture_(base::join_path(folder, kPicture)),
      samples_(experiment, folder, trainer.steps_done()) {
  if (!experiment.recipe.train.report) return;
  RunPageContent content = page_content(experiment, trainer, folder, words);
  content.history = trainer.history();
  for (train::LossPoint& point : content.history.losses) point = shown(point);
  content.samples = samples_.all();
  if (trainer.steps_done() > 0 && base::path_exists(picture_)) content.picture = base::read_file(picture_, 1 << 26);
  page_.emplace(std::move(content), folder, lock);
}

train::LossPoint RunRecord::shown(train::LossPoint point) const {
  point.loss = experiment_.task->metric_of_loss(point.loss).value_or(point.loss);
  return point;
}

void RunRecord::listen(train::RunHooks& hooks) {
  if (samples_.every() > 0) {
    hooks.sample_every = samples_.every();
    hooks.on_sample = [this](int64_t step) {
      const RunSample* sample = samples_.take(step);
      if (page_ && sample != nullptr) page_->add(*sample);
    };
  }
  if (!page_) return;
  hooks.on_loss = [this, before = hooks.on_loss](const train::LossPoint& point) {
    if (before) before(point);
    page_->add(shown(point));
  };
  hooks.on_evaluation = [this, before = hooks.on_evaluation](const train::EvaluationPoint& point) {
    if (before) before(point);
    page_->add(point);
    draw(point.step);
  };
}

/// The model has the weights that were evaluated.
void RunRecord::draw(int64_t step) {
  std::string picture = experiment_.task->picture(*experiment_.model);
  if (picture.empty()) return;
  base::write_file_atomic(picture_, picture);
  page_->set_picture(std::move(picture), step);
}

void RunRecord::stopped(const train::TrainReport& report) {
  if (page_) page_->end(PageState::stopped, fmt::format("Stopped after step {}.", base::grouped(report.steps)));
}

void RunRecord::finished(const train::TrainReport& report, const std::optional<train::EvaluationPoint>& evaluation) {
  if (!page_) return;
  std::string note;
  if (report.out_of_patience && evaluation)
    note = fmt::format("Out of patience after step {}; the model is that of step {}, the best evaluation.",
                       base::grouped(report.steps), base::grouped(evaluation->step));
  else if (report.steps < experiment_.recipe.train.steps)
    note = fmt::format("Ended early, after step {}.", base::grouped(report.steps));
  page_->end(PageState::finished, note);
}

}  // namespace mnemo::runs
