#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace mnemo::base {

/// During its lifetime, the first SIGINT or SIGTERM is recorded instead of ending the process, and answered with a line
/// on stderr: "ANSWER; again to stop now". A second one, of either kind, says which steps are lost and ends the process
/// as usual. One within 200 ms of the first is ignored: `timeout` signals a process and its group, shells and service
/// managers both the process and its parent. The destructor restores the previous handlers.
class SignalGuard {
 public:
  /// `answer` must outlive the guard. A guard inside another's lifetime changes nothing.
  explicit SignalGuard(const char* answer = "stopping after this step");
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// The signal recorded since the first SignalGuard was created, or 0. A program that stops for it exits with status
/// stopped_by(signal).
int pending_signal();

/// Work that ended early because of a recorded signal. The command line prints the message and exits with status
/// stopped_by(signal).
class Stopped : public std::runtime_error {
 public:
  Stopped(int signal, const std::string& message) : std::runtime_error(message), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Notes the work that a second signal would lose: steps done, and the step of the last checkpoint (-1: none).
void note_progress(int64_t done, int64_t saved);

}  // namespace mnemo::base
