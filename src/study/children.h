#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::study {

/// A child process that does one part of the work.
struct ChildJob {
  std::vector<std::string> arguments;  ///< after the program's name
  std::string log;                     ///< file that receives its standard error
};

/// How a child ended.
struct ChildEnd {
  int status = 0;             ///< exit status; meaningless if it was ended by a signal
  int signal = 0;             ///< signal that ended it, or 0
  int64_t peak_memory = 0;    ///< peak in bytes, as counted by the kernel (at least this program's own size when the
                              ///< child started)
  bool told_to_stop = false;  ///< we asked it to stop before it ended

  bool done() const { return status == 0 && signal == 0; }
};

struct ChildrenOptions {
  int64_t jobs = 1;          ///< children running at the same time
  int64_t threads = 1;       ///< OMP_NUM_THREADS of each
  std::string program = {};  ///< program to run; empty: this one
  std::function<void(size_t job)> on_start;
  std::function<void(size_t job, std::string_view line)> on_line;  ///< each line a child prints
  std::function<void(size_t job, const ChildEnd&)> on_end;
  std::function<bool()> stop = {};  ///< asked several times a second: whether to stop as at a signal
};

/// Runs the jobs in order, `jobs` of them at a time, and waits for all. SIGINT and SIGTERM stop the children with
/// SIGTERM, and with SIGKILL if a second signal arrives at least a second later; no new children are started. Children
/// die with this process, however it ends. Returns the signal that stopped it (SIGTERM where it was `stop`), or 0.
/// Throws InputError if a child cannot be started.
int run_children(const std::vector<ChildJob>& jobs, const ChildrenOptions& options);

}  // namespace mnemo::study
