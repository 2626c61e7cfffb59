#pragma once

#include <string>

#include "cli/recipe.h"
#include "cli/results.h"
#include "cli/summary.h"

namespace mnemo::cli {

/// One training of a comparison, done by a process of its own. Its folder holds job.json, and then the run: log.jsonl,
/// model/, result.json.
struct CompareJob {
  std::string study, variant, folder;
  int64_t seed = 0;
  double max_seconds = 0;  ///< of training; 0: no limit
  Recipe recipe;  ///< with that seed
};

/// What a study over such data measures.
StudyMetric metric_of(const Recipe& recipe);

/// Writes job.json, which read_job reads. Throws InputError.
void write_job(const CompareJob& job);
CompareJob read_job(const std::string& folder);
/// The text of job.json: the same for the same training.
std::string job_text(const CompareJob& job);

/// Trains and measures; the child's side. Prints "progress STEP LOSS" lines and writes result.json. Returns the exit
/// status: 130 or 143 when a signal stopped it.
int run_job(const CompareJob& job);

}  // namespace mnemo::cli
