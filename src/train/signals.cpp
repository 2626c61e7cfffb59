#include "train/signals.h"

#include <signal.h>

#include <array>
#include <atomic>

namespace mnemo::train {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

std::atomic<int> noted = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch nothing else");
int guards = 0;
std::array<struct sigaction, kSignals.size()> previous;

void note(int signal) { noted.store(signal, std::memory_order_relaxed); }

}  // namespace

SignalGuard::SignalGuard() {
  if (guards++ > 0) return;
  noted = 0;
  struct sigaction action {};
  action.sa_handler = note;
  // Back to the default after the first, so that an impatient second Ctrl-C works; system calls in progress go on.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

SignalGuard::~SignalGuard() {
  if (--guards > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int pending_signal() { return noted.load(std::memory_order_relaxed); }

}  // namespace mnemo::train
