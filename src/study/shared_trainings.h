#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/group.h"
#include "study/children.h"

namespace mnemo::study {

struct SharedOptions {
  int64_t threads = 1;                      ///< of each training whose recipe names none
  std::vector<std::string> arguments = {};  ///< of the program, after `compare --job FOLDER`
  std::string program = {};                 ///< empty: this one
  std::function<void(size_t training)> on_start = {};
  std::function<void(size_t training, std::string_view line)> on_line = {};
  /// When this rank knows how a training has ended: its own at once, on rank 0 those of the others at the end.
  std::function<void(size_t training, const ChildEnd& end)> on_end = {};
  base::ShouldStop should_stop = {};  ///< as ChildrenOptions has it
  std::function<int()> wishes = {};   ///< likewise; a second one ends this rank's wait for the others
};

/// The ranks of a group do the trainings prepared in these folders (rank 0's list), each rank one at a time in a
/// process of its own, whichever is next. Every rank calls it; it returns when all trainings have ended, with 0, or
/// with should_stop's answer on this rank or, where another one was stopped, SIGTERM: then all stop after a checkpoint,
/// and the group is left. Throws RankFailure.
int run_shared_trainings(distributed::Group& group, const std::vector<std::string>& folders,
                         const SharedOptions& options);

}  // namespace mnemo::study
