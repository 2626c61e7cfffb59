#pragma once

namespace mnemo::train {

/// While one exists, SIGINT and SIGTERM are noted instead of ending the process; the second one of a kind ends it as
/// usual. The handlers found are put back by the destructor.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// The signal noted since the first SignalGuard was made, or 0. A program that stops for it exits with 128 + its
/// number.
int pending_signal();

}  // namespace mnemo::train
