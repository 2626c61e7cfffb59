#include "base/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <string_view>

#include "base/log.h"

namespace mnemo::base {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

constexpr int64_t kOneWish = 200;  // milliseconds

std::atomic<int> noted = 0;
std::atomic<int64_t> noted_at = 0, steps_done = -1, step_saved = -1;
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler may touch nothing else");
bool on_terminal = false;
const char* answer_line = nullptr;
int guards = 0;
std::array<struct sigaction, kSignals.size()> previous;

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// A line, built only from calls that a signal handler may use.
class Line {
 public:
  Line() {
    if (on_terminal) *this << "\r\x1b[K";
  }
  Line& operator<<(std::string_view part) {
    for (size_t i = 0; i < part.size() && size_ < text_.size(); ++i) text_[size_++] = part[i];
    return *this;
  }
  Line& operator<<(int64_t number) {
    std::array<char, 20> digits;
    const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return *this << std::string_view(digits.data(), static_cast<size_t>(end - digits.data()));
  }
  void write() {
    if (::write(STDERR_FILENO, text_.data(), size_) < 0) return;  // nothing else can report it
  }

 private:
  std::array<char, 256> text_;
  size_t size_ = 0;
};

void tell_what_is_lost() {
  const int64_t done = steps_done, saved = step_saved;
  Line line;
  line << "stopped at once";
  if (done > saved && done > 0) line << "; lost: steps " << (saved < 0 ? 1 : saved + 1) << " to " << done;
  if (saved >= 0) line << "; the last checkpoint is that of step " << saved;
  if (saved < 0 && done >= 0) line << "; there is no checkpoint";
  (line << "\n").write();
}

void note(int signal) {
  const int64_t now = milliseconds();
  int none = 0;
  if (noted.compare_exchange_strong(none, signal)) {
    noted_at = now;
    (Line() << answer_line << "; again to stop now\n").write();
    return;
  }
  if (now - noted_at < kOneWish) return;
  tell_what_is_lost();
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  ::raise(signal);  // ends the process when this handler returns
}

}  // namespace

SignalGuard::SignalGuard(const char* answer) {
  if (guards++ > 0) return;
  answer_line = answer;
  noted = 0;
  steps_done = step_saved = -1;
  on_terminal = log_is_terminal();
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;  // system calls in progress go on
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

SignalGuard::~SignalGuard() {
  if (--guards > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int pending_signal() { return noted; }

void note_progress(int64_t done, int64_t saved) {
  steps_done = done;
  step_saved = saved;
}

}  // namespace mnemo::base
