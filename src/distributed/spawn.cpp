#include "distributed/spawn.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "distributed/group.h"

namespace mnemo::distributed {
namespace {

/// The words of this process's command line.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  base::require(!words.empty(), "several processes: /proc/self/cmdline cannot be read");
  return words;
}

constexpr const char* kJob = "processes";

/// For the ranks of a failed job, which notice a failure within a few seconds. Longer if a rank has refused its input,
/// so that the others can report the same. Shorter after a time-out, so that all end within 5 seconds of it.
constexpr std::chrono::seconds kGrace(3), kGraceAfterInputError(10), kGraceAfterTimeout(2);
/// For the others once rank 0 has ended well, which it does early if its output has no reader any more. Shorter than
/// the time after which they report that it is missing (gloo.cpp).
constexpr std::chrono::seconds kGraceAfterEnd(2);

/// What torchrun gives a rank in its environment.
std::map<std::string, std::string> variables_of(int64_t rank, int64_t size, uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", kJob},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {kLauncherVariable, std::to_string(getpid())},
          {"MNEMO_PROCESSES", std::to_string(size)}};
}

struct Rank {
  base::ChildProcess process;
  bool running = true;
  bool dismissed = false;  ///< rank 0 has ended well, and this one waited for it
  int status = 0;          ///< as a shell has it: 128 + the signal that ended it
};

class Supervisor {
 public:
  explicit Supervisor(const SpawnOptions& options) : options_(options) {}

  int run() {
    for (int64_t rank = 0; rank < options_.processes; ++rank) start(rank);
    while (running() > 0) {
      if (const int signals = options_.signals ? options_.signals() : 0; signals > passed_) {
        passed_ = signals;
        tell_all(options_.last_signal());
      }
      const bool changed = reap();
      if (deadline_ && std::chrono::steady_clock::now() > *deadline_) tell_all(SIGKILL);
      if (end_ && std::chrono::steady_clock::now() > *end_) dismiss();
      if (!changed) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return status();
  }

 private:
  void start(int64_t rank) {
    ranks_.push_back({base::ChildProcess({.words = own_arguments(),
                                          .program = base::ChildOptions::kThisProgram,
                                          .environment = variables_of(rank, options_.processes, rendezvous_.port())})});
  }

  int64_t running() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
  }

  void tell_all(int signal) const {
    for (const Rank& rank : ranks_) rank.process.send(signal);
  }

  void dismiss() {
    for (Rank& rank : ranks_) rank.dismissed = rank.dismissed || rank.running;
    tell_all(SIGKILL);
  }

  /// Collects processes that have ended; returns whether any has.
  bool reap() {
    bool changed = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      if (!rank.running || !rank.process.poll()) continue;
      changed = true;
      rank.running = false;
      if (rank.dismissed) continue;
      const base::ProcessEnd& end = rank.process.wait();
      rank.status = end.signal == 0 ? end.status : base::stopped_by(end.signal);
      if (rank.status != 0) {
        ended_badly(r, end);
      } else if (r == 0) {
        end_ = std::chrono::steady_clock::now() + kGraceAfterEnd;
      }
    }
    return changed;
  }

  void ended_badly(size_t r, const base::ProcessEnd& end) {
    const auto rank = static_cast<int64_t>(r);
    const bool saved = ranks_[r].status == base::kTerminated || ranks_[r].status == base::kInterrupted;
    if (end.signal == 0 && saved) return;
    if (passed_ > 0 && end.signal == options_.last_signal()) {  // a second one, which the others were sent too
      stopped_ = true;
      if (!deadline_) deadline_ = std::chrono::steady_clock::now() + kGrace;
    }
    if (stopped_) return;
    const std::string file = rank > 0 && options_.log ? options_.log(rank) : "";
    const std::string log = file.empty() ? "" : "; its log: " + file;
    const std::string name = rendezvous_.named(fmt::format("{}/0", kJob), rank);
    if (end.signal != 0) {
      killed_ = true;
      const std::string message = fmt::format("{} was ended by signal {} ({}){}", name, end.signal,
                                              strsignal(end.signal), log);
      if (!deadline_) base::log_warning("{}", message);
      rendezvous_.report_failure(fmt::format("{}/0", kJob), message);
    } else if (!deadline_ && rank > 0) {
      base::log_warning("{} ended with status {}{}", name, ranks_[r].status, log);
    }
    if (deadline_) return;
    const int ended = end.signal == 0 ? end.status : -1;
    deadline_ = std::chrono::steady_clock::now() + (ended == base::kWrongInput   ? kGraceAfterInputError
                                                    : ended == base::kAnswerIsNo ? kGraceAfterTimeout
                                                                                 : kGrace);
  }

  int status() const {
    if (stopped_) return base::stopped_by(options_.last_signal());
    if (killed_) return base::kAnswerIsNo;
    if (ranks_.front().status != 0) return ranks_.front().status;
    for (const Rank& rank : ranks_) {
      if (rank.status != 0) return rank.status;
    }
    return base::kDone;
  }

  const SpawnOptions& options_;
  Rendezvous rendezvous_;
  std::vector<Rank> ranks_;
  std::optional<std::chrono::steady_clock::time_point> deadline_, end_;
  int passed_ = 0;  // signals
  bool killed_ = false, stopped_ = false;
};

}  // namespace

int run_processes(const SpawnOptions& options) { return Supervisor(options).run(); }

}  // namespace mnemo::distributed
