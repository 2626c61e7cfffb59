#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/stop.h"
#include "recipes/recipe.h"
#include "study/results.h"
#include "study/summary.h"

namespace mnemo::study {

/// One training run of a comparison, in a process of its own. Its folder contains job.json and recipe.toml, then
/// log.jsonl and checkpoints like any run, and at the end model/ and result.json.
struct CompareJob {
  std::string study, variant, point, folder;
  int64_t seed = 0;
  double max_seconds = 0;  ///< limit of the training time; 0: none
  recipes::Recipe recipe;  ///< with `seed` filled in
};

/// The metric of a study on this recipe's data; name: of an evaluation, or empty for the task's own. Throws InputError
/// for one that there is not.
StudyMetric metric_of(const recipes::Recipe& recipe, const std::string& name = {});

/// Writes job.json, which read_job reads, and recipe.toml. Throws InputError.
void write_job(const CompareJob& job);
CompareJob read_job(const std::string& folder);
/// Identifies a training run: its whole recipe without name and about.
std::string training_text(const CompareJob& job);

void remove_checkpoints(const std::string& folder);

struct JobHooks {
  std::function<void(int64_t step, double loss)> on_loss = {};
  base::ShouldStop should_stop = {};  ///< asked after every step; the training ends after a checkpoint
  base::StopGuard stop_guard = {};    ///< called once a training would leave a checkpoint
  std::function<void(int64_t done, int64_t saved)> on_step = {};  ///< as train::RunHooks::on_step
};

/// Trains and evaluates. Resumes from the newest checkpoint in the job's folder, writes result.json and the model, and
/// removes the checkpoints. Returns the answer of should_stop that ended it, or 0.
int run_job(const CompareJob& job, const std::optional<std::string>& device, const JobHooks& hooks = {});

}  // namespace mnemo::study
