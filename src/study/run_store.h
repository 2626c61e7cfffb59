#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/folder_lock.h"
#include "study/compare_job.h"
#include "study/results.h"

namespace mnemo::study {

/// "RMT + Transformer-XL cache" as part of a file name: "rmt-transformer-xl-cache"; at most 60 characters.
std::string slug(std::string_view text);

/// The finished and unfinished training runs in a comparison's folder. A run is identified by its recipe, not by its
/// name: if the recipe changes, it is another run, while names, order and number of variants may change without
/// repeating any. Keys that a recipe leaves out are compared as their current defaults, so keys added by a later
/// version do no harm.
class RunStore {
 public:
  /// Locks the folder for this process. Throws InputError if another process is using it, and for the folder of a
  /// training run.
  explicit RunStore(const std::string& folder);

  /// Sets the job's folder to that of the same training run, or to a new one. Writes nothing.
  void place(CompareJob& job);
  /// How a training that is not there yet differs from one of the same study, variant, point and seed that is:
  /// "train.steps: 500 before, 450 now"; nothing without such a one.
  std::optional<std::string> change_of(const CompareJob& job) const;
  /// The result that an earlier comparison recorded for this training run.
  std::optional<RunResult> finished(const CompareJob& job) const;
  /// Prepares the folder for training or for resuming from the last checkpoint; `anew`: start from scratch.
  void prepare(const CompareJob& job, bool anew) const;

 private:
  std::string folder_;
  base::FolderLock lock_;
  std::map<std::string, std::string> folders_;  // key: training_text
  std::map<std::string, std::string> texts_;    // the training_text of those that were there, by run_name
  std::set<std::string> names_;
};

/// Files in the folder of a training run.
std::string result_file(const CompareJob& job);
std::string output_file(const std::string& folder);
inline std::string output_file(const CompareJob& job) { return output_file(job.folder); }

}  // namespace mnemo::study
