#pragma once

#include <cstdint>
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
  /// `anew`: repeat trainings that are already done.
  Supervisor(std::vector<CompareJob> jobs, const RunStore& store, bool anew);

  /// Runs each training in a process of its own: `program` (empty: this one) with `compare --job FOLDER` and the
  /// arguments. Returns the signal that stopped it, or 0.
  int run(int64_t parallel, int64_t threads, const std::vector<std::string>& arguments,
          const std::string& program = {});
  /// Runs one training at a time on each rank of a group. This is rank 0; the others call run_shared_trainings().
  int run_on_ranks(distributed::Group& group, int64_t threads, const std::vector<std::string>& arguments,
                   const std::string& program = {});
  /// Runs the trainings one after the other in this process. Returns the signal noted by the caller's
  /// base::SignalGuard, or 0.
  int run_here(const std::optional<std::string>& device);

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
