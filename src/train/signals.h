#pragma once

namespace mnemo::train {

/// During its lifetime, SIGINT and SIGTERM are recorded instead of ending the process; a second signal of the same kind
/// ends it as usual. The destructor restores the previous handlers.
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

}  // namespace mnemo::train
