#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/child_process.h"
#include "base/stop.h"

namespace mnemo::study {

/// A child process that does one part of the work.
struct ChildJob {
  std::vector<std::string> arguments;  ///< after the program's name
  std::string log;                     ///< file that receives its standard error
};

/// How a child ended.
struct ChildEnd : base::ProcessEnd {
  bool told_to_stop = false;  ///< we asked it to stop before it ended
};

struct ChildrenOptions {
  int64_t jobs = 1;          ///< children running at the same time
  int64_t threads = 1;       ///< OMP_NUM_THREADS of each
  std::string program = {};  ///< program to run; empty: this one
  std::function<void(size_t job)> on_start;
  std::function<void(size_t job, std::string_view line)> on_line;  ///< each line a child prints
  std::function<void(size_t job, const ChildEnd&)> on_end;
  base::ShouldStop should_stop = {};  ///< asked several times a second
  /// How often should_stop's owner has wished it so far; empty: once. A wish at least a second after the first ends the
  /// children at once.
  std::function<int()> wishes = {};
};

/// How a child begins the line that says that the disk is full, since its log has no room either.
inline constexpr std::string_view kDiskFull = "disk full: ";

/// Runs the jobs in order, `jobs` of them at a time, and waits for all. Where should_stop says so, the children get
/// SIGTERM, and SIGKILL if that is wished again; no new children are started. Children die with this process, however
/// it ends. Returns the answer of should_stop, or 0. Throws InputError if a child cannot be started, and, once all have
/// stopped, DiskFull if one has told of a full disk.
int run_children(const std::vector<ChildJob>& jobs, const ChildrenOptions& options);

}  // namespace mnemo::study
