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

/// The trainings in a comparison's folder, done and half done. A training is known again by its recipe, not by its
/// name: one whose recipe has changed is another training, and names, order and number of variants may change without
/// any being repeated. What the recipe leaves to defaults is compared with today's defaults, so keys that a later
/// version adds do no harm.
class RunStore {
 public:
  /// Takes the folder for this process. Throws InputError where another process is at work in it, and for the folder of
  /// a training's run.
  explicit RunStore(const std::string& folder);

  /// Gives a job the folder of the same training, or a new one. Writes nothing.
  void place(CompareJob& job);
  /// What an earlier comparison recorded of this training.
  std::optional<RunResult> finished(const CompareJob& job) const;
  /// Makes the folder ready for the training to begin, or to go on from its last checkpoint; `anew`: from the start.
  void prepare(const CompareJob& job, bool anew) const;

 private:
  std::string folder_;
  base::FolderLock lock_;
  std::map<std::string, std::string> folders_;  // by training_text
  std::set<std::string> names_;
};

/// Files of a training's folder.
std::string result_file(const CompareJob& job);
std::string output_file(const CompareJob& job);

}  // namespace mnemo::study
