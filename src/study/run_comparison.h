#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "study/summary.h"

namespace mnemo::study {

struct ComparisonOptions {
  std::string recipe;                      ///< a file with [[study]] tables or a [sweep]
  std::vector<std::string> set = {};       ///< "KEY=VALUE" of every recipe, or of a study
  std::string out = {};                    ///< folder of report, results and runs; empty: runs/NAME of the recipe
  std::optional<int64_t> seeds = {};       ///< trainings of each variant; unset: the recipe's
  std::optional<int64_t> jobs = {};        ///< trainings at a time; unset: as many as there are cores
  int64_t threads = 0;                     ///< of each training; 0: the cores are shared out
  std::optional<std::string> device = {};  ///< "cpu", "cuda" or "cuda:N"
  bool again = false;                      ///< repeat trainings that are done
  std::string command = {};                ///< how it was asked for, for the report
  /// Train here, one after the other, instead of each training in a process of its own of the program `program`. The
  /// memory that a training held is then that of the whole process.
  bool here = false;
  std::string program = {};  ///< a `mnemo` program; empty: this process' own
};

struct ComparisonOutcome {
  Comparison comparison;  ///< empty after a signal
  std::string folder;
  std::string report;  ///< report.html, in the folder
  int signal = 0;      ///< that stopped it; 0: none
  int status = 0;      ///< the worst exit status of a training that failed
  size_t finished = 0, trainings = 0;
};

/// Trains every variant of every study that the folder does not hold yet, and writes results.json, results.md and
/// report.html. A training that fails leaves its error in its row. Throws InputError for a recipe without studies, or
/// with one that cannot be built.
ComparisonOutcome run_comparison(const ComparisonOptions& options);

}  // namespace mnemo::study
