#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "distributed/group.h"
#include "study/summary.h"

namespace mnemo::study {

struct ComparisonOptions {
  std::string recipe;                  ///< a file with [[study]] tables or a [sweep]
  std::vector<std::string> set = {};   ///< "KEY=VALUE", applied to every recipe or to a study
  std::vector<std::string> only = {};  ///< variants as RecipeFile::keep_only() takes them; empty: all
  std::string out = {};               ///< folder of the report, results and runs; empty: runs/NAME of the recipe's file
  std::optional<int64_t> seeds = {};  ///< training runs per variant; unset: as in the recipe
  std::optional<int64_t> jobs = {};   ///< training runs at the same time; unset: as many as there are cores
  int64_t threads = 0;                ///< threads of each training run; 0: share out the cores. Not with `here`
  std::optional<std::string> device = {};  ///< "cpu", "cuda" or "cuda:N"
  bool again = false;                      ///< repeat training runs that are already done
  std::string command = {};                ///< command line, shown in the report
  /// Train in this process, one run after the other, instead of starting a process of `program` for each. The peak
  /// memory of a run is then that of the whole process.
  bool here = false;
  std::string program = {};  ///< the `mnemo` program; empty: this one
  /// The ranks of a job that share the trainings, one a rank, with the same options and a folder that all of them see;
  /// null: the trainings run on this machine alone.
  std::shared_ptr<distributed::Group> group = {};
  base::ShouldStop should_stop = {};  ///< asked after each step, and several times a second where processes train
  base::StopGuard stop_guard = {};    ///< called before the first training; kept until the last one has ended
  std::function<int()> wishes = {};   ///< as ChildrenOptions has it
};

struct ComparisonOutcome {
  Comparison comparison;  ///< empty where it was stopped, and on ranks other than 0
  std::string folder;
  std::string report;  ///< path of report.html
  int stopped = 0;     ///< the answer of should_stop that ended it early, or 0
  int status = 0;      ///< worst exit status of the training runs that failed
  size_t finished = 0, trainings = 0;
};

/// Runs every training of every study that is not yet in the folder, and writes results.json, results.md and
/// report.html. If a training fails, its row shows the error. Throws InputError if the recipe has no studies, or one
/// that cannot be built.
ComparisonOutcome run_comparison(const ComparisonOptions& options);

}  // namespace mnemo::study
