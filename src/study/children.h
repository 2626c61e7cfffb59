#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::study {

/// A process of this same program that does one part of the work.
struct ChildJob {
  std::vector<std::string> arguments;  ///< after the program's name
  std::string log;                     ///< file that its standard error goes to
};

/// How a child ended.
struct ChildEnd {
  int status = 0;             ///< exit status; meaningless where a signal ended it
  int signal = 0;             ///< signal that ended it, or 0
  int64_t peak_memory = 0;    ///< bytes, as the kernel counted (at least this program's own when it was started)
  bool told_to_stop = false;  ///< before it ended

  bool done() const { return status == 0 && signal == 0; }
};

struct ChildrenOptions {
  int64_t jobs = 1;     ///< children at a time
  int64_t threads = 1;  ///< OMP_NUM_THREADS of each
  std::function<void(size_t job)> on_start;
  std::function<void(size_t job, std::string_view line)> on_line;  ///< each line a child prints
  std::function<void(size_t job, const ChildEnd&)> on_end;
};

/// Runs the jobs in order, some at a time, and waits for all. SIGINT and SIGTERM stop the children with SIGTERM, then,
/// after
/// 20 seconds or at a second signal a second later or more, with SIGKILL; no new ones start. Children die with this
/// process, however it ends. Returns the signal that stopped it, or 0. Throws InputError when a child cannot be
/// started.
int run_children(const std::vector<ChildJob>& jobs, const ChildrenOptions& options);

}  // namespace mnemo::study
