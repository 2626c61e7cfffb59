#pragma once

#include <cstdint>
#include <memory>

namespace mnemo::cli {

/// During its lifetime, the first SIGINT or SIGTERM is recorded instead of ending the process, and answered with a line
/// on stderr: "ANSWER; again to stop now". A second one, of either kind, says which steps are lost and ends the process
/// as usual; one that comes within 200 ms of the first is part of it (`timeout` signals a process and its group, shells
/// and service managers both the process and its parent). The destructor restores the previous handlers. One guard or
/// count at a time.
class SignalGuard {
 public:
  /// `answer` must outlive the guard.
  explicit SignalGuard(const char* answer = "stopping after this step");
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// The signal recorded since the last SignalGuard was created, or 0: a base::ShouldStop. A program that stops for it
/// exits with status base::stopped_by(signal).
int pending_signal();

/// A base::StopGuard.
inline std::shared_ptr<void> guard_signals() { return std::make_shared<SignalGuard>(); }

/// Notes the work that a second signal would lose: steps done, and the step of the last checkpoint (-1: none).
void note_progress(int64_t done, int64_t saved);

/// During its lifetime, SIGINT and SIGTERM are counted instead of ending the process, for work that passes them on.
class SignalCount {
 public:
  SignalCount();
  ~SignalCount();
  SignalCount(const SignalCount&) = delete;
  SignalCount& operator=(const SignalCount&) = delete;

  /// Signals since the last SignalCount was made.
  static int count();
  /// The last signal; 0: none.
  static int last();
};

}  // namespace mnemo::cli
