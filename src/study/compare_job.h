#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "experiment/recipe.h"
#include "study/results.h"
#include "study/summary.h"

namespace mnemo::study {

/// One training of a comparison, done by a process of its own. Its folder holds job.json and recipe.toml, then a run's
/// log.jsonl and checkpoints, and at the end model/ and result.json.
struct CompareJob {
  std::string study, variant, point, folder;
  int64_t seed = 0;
  double max_seconds = 0;     ///< of training; 0: no limit
  experiment::Recipe recipe;  ///< with that seed
};

/// What a study over such data measures.
StudyMetric metric_of(const experiment::Recipe& recipe);

/// Writes job.json, which read_job reads, and recipe.toml. Throws InputError.
void write_job(const CompareJob& job);
CompareJob read_job(const std::string& folder);
/// What makes a training what it is: all of its recipe but name and about.
std::string training_text(const CompareJob& job);

void remove_checkpoints(const std::string& folder);

struct JobHooks {
  std::function<void(int64_t step, double loss)> on_loss = {};
  bool stops_at_signals = true;  ///< SIGINT and SIGTERM end the training after a checkpoint
};

/// Trains and measures. Goes on from the newest checkpoint in the job's folder; writes result.json and the model, and
/// removes the checkpoints. Returns the exit status: 130 or 143 when a signal stopped it.
int run_job(const CompareJob& job, const std::optional<std::string>& device, const JobHooks& hooks = {});

}  // namespace mnemo::study
