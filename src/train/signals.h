#pragma once

#include <cstdint>

namespace mnemo::train {

/// During its lifetime, the first SIGINT or SIGTERM is recorded instead of ending the process, and answered with a line
/// on stderr. A second one, of either kind, says which steps are lost and ends the process as usual; one that comes
/// within 200 ms of the first is part of it (`timeout` signals a process and its group, shells and service managers
/// both the process and its parent). The destructor restores the
/// previous handlers.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// The signal recorded since the first SignalGuard was created, or 0. A program that stops for it exits with status 128
/// + its number.
int pending_signal();

/// What a second signal would lose: steps done, and the step of the last checkpoint (-1: none).
void note_progress(int64_t done, int64_t saved);

}  // namespace mnemo::train
