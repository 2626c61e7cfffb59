#pragma once

#include <optional>
#include <string>

#include "experiment/experiment.h"
#include "runs/run_page.h"
#include "runs/run_samples.h"
#include "train/trainer.h"

namespace mnemo::runs {

/// Texts of a run's page that the experiment does not have.
struct RunWords {
  std::string title = {};  ///< empty: the recipe's
  std::string command, resume;
};

/// Follows a training in a folder: samples.jsonl and report.html, as the recipe asks (generate.sample_every,
/// train.report), and picture.svg, what the model makes of held-out data, where its task draws that.
class RunRecord {
 public:
  /// After the trainer has resumed; `lock` keeps the folder. Throws InputError if the recipe asks for samples and its
  /// task is no text.
  RunRecord(const experiment::Experiment& experiment, const train::Trainer& trainer, const std::string& folder,
            const base::FolderLock& lock, const RunWords& words);

  /// Adds its own hooks to those of a run, after existing ones.
  void listen(train::RunHooks& hooks);
  /// A signal or a limit of time has ended the run.
  void stopped(const train::TrainReport& report);
  /// Called when the model is written; `evaluation`: its measurement.
  void finished(const train::TrainReport& report, const std::optional<train::EvaluationPoint>& evaluation);

 private:
  static constexpr const char* kPicture = "picture.svg";

  train::LossPoint shown(train::LossPoint point) const;
  void draw(int64_t step);

  const experiment::Experiment& experiment_;
  std::string picture_;  ///< path
  RunSamples samples_;
  std::optional<RunPageWriter> page_;
};

}  // namespace mnemo::runs
