#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "distributed/group.h"
#include "study/children.h"
#include "study/compare_job.h"
#include "study/run_store.h"

namespace mnemo::study {

/// Runs the missing trainings of a comparison and keeps their results.
class Supervisor {
 public:
  /// `anew`: repeat trainings that are already done. Throws InputError if the data of one that is to be run are not
  /// there.
  Supervisor(std::vector<CompareJob> jobs, const RunStore& store, bool anew);

  /// How trainings are run, and when they end early.
  struct Options {
    int64_t parallel = 1;
    int64_t threads = 1;                      ///< of each training whose recipe names none
    std::vector<std::string> arguments = {};  ///< of the program, after `compare --job FOLDER`
    std::string program = {};                 ///< empty: this one
    base::ShouldStop should_stop = {};
    std::function<int()> wishes = {};  ///< as ChildrenOptions has it
  };
  /// Runs each training in a process of its own. Returns the answer of should_stop that ended it, or 0.
  int run(const Options& options);
  /// Runs one training on each rank of a group, as its rank 0; the other ranks call run_shared_trainings(). Returns as
  /// run().
  int run_on_ranks(distributed::Group& group, const Options& options);
  /// Runs the trainings one after the other in this process. Returns as run().
  int run_here(const std::optional<std::string>& device, const base::ShouldStop& should_stop);

  const std::vector<CompareJob>& jobs() const { return jobs_; }
  /// Unset if the training did not finish.
  const std::optional<RunResult>& result(size_t job) const { return results_[job]; }
  size_t finished() const { return finished_; }
  /// The worst exit status of a child that failed on its own.
  int status() const { return status_; }

 private:
  void begin();
  void note_stopped_alone();
  void told(size_t job, std::string_view line);
  void show();
  void ended(size_t job, const ChildEnd& end);

  std::vector<CompareJob> jobs_;
  const RunStore& store_;
  bool anew_;
  std::vector<std::optional<RunResult>> results_;
  std::vector<size_t> waiting_, running_;
  std::vector<int64_t> done_steps_;
  int64_t total_steps_ = 0;
  size_t finished_ = 0;
  int status_ = 0;
  std::unique_ptr<base::Progress> progress_;
};

}  // namespace mnemo::study
