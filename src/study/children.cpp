#include "study/children.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>

#include "base/disk_full.h"
#include "base/log.h"

namespace mnemo::study {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAtOnce = std::chrono::seconds(1);  // `timeout` signals both the process and its group: count that as
                                                   // one request

base::ChildOptions child_of(const ChildJob& job, const ChildrenOptions& options) {
  base::ChildOptions child{.words = {"mnemo"},
                           .program = options.program.empty() ? base::ChildOptions::kThisProgram : options.program,
                           .environment = {{"OMP_NUM_THREADS", std::to_string(options.threads)}},
                           .input = base::ChildOptions::Stream::nothing,
                           .output = base::ChildOptions::Stream::pipe,
                           .error_file = job.log,
                           .belongs = true};
  child.words.insert(child.words.end(), job.arguments.begin(), job.arguments.end());
  return child;
}

struct Child {
  Child(size_t number, const base::ChildOptions& options) : job(number), process(options) {}
  size_t job;
  base::ChildProcess process;
  std::string pending;
};

/// Passes wishes on to the children: the first asks them to stop, another one kills them.
class Stopper {
 public:
  explicit Stopper(const ChildrenOptions& options) : options_(options) {}
  bool stopping() const { return told_ > 0; }
  int reason() const { return reason_; }

  /// Asks the children to stop.
  void stop(int reason, const std::list<Child>& children) {
    since_ = Clock::now();
    told_ = 1;
    reason_ = reason;
    for (const Child& child : children) child.process.send(SIGTERM);
  }

  void inspect(const std::list<Child>& children) {
    const int reason = told_ == 0 && options_.should_stop ? options_.should_stop() : 0;
    if (reason == 0 && told_ == 0) return;
    const int seen = options_.wishes ? options_.wishes() : 1;
    if (told_ == 0) {
      answered_ = std::max(seen, 1);  // where others stop, the first wish of our own is part of it
      base::log_warning("stopping {} training{} after a checkpoint; again to stop now", children.size(),
                        children.size() == 1 ? "" : "s");
      stop(reason, children);
    }
    if (Clock::now() - since_ < kAtOnce) answered_ = std::max(answered_, seen);
    if (told_ == 1 && seen > answered_) {
      told_ = 2;
      for (const Child& child : children) child.process.send(SIGKILL);
    }
  }

 private:
  const ChildrenOptions& options_;
  int told_ = 0, reason_ = 0;
  int answered_ = 0;  // wishes that belong to the first request
  Clock::time_point since_{};
};

}  // namespace

int run_children(const std::vector<ChildJob>& jobs, const ChildrenOptions& options) {
  Stopper stopper(options);
  std::list<Child> running;
  std::string disk_full;
  size_t next = 0;
  while (!running.empty() || (next < jobs.size() && !stopper.stopping())) {
    while (!stopper.stopping() && next < jobs.size() && running.size() < static_cast<size_t>(options.jobs)) {
      running.emplace_back(next, child_of(jobs[next], options));
      if (options.on_start) options.on_start(next);
      ++next;
    }
    std::vector<pollfd> waiting;
    for (const Child& child : running) waiting.push_back({child.process.output(), POLLIN, 0});
    const int ready = ::poll(waiting.data(), waiting.size(), 200);
    stopper.inspect(running);
    if (ready <= 0) continue;
    size_t i = 0;
    for (auto child = running.begin(); child != running.end(); ++i) {
      const bool at_end = waiting[i].revents != 0 && !child->process.read(child->pending);
      while (const auto line = base::take_line(child->pending)) {
        if (line->starts_with(kDiskFull) && disk_full.empty()) {
          disk_full = line->substr(kDiskFull.size());
          if (!stopper.stopping()) stopper.stop(SIGTERM, running);
        }
        if (options.on_line) options.on_line(child->job, *line);
      }
      if (!at_end) {
        ++child;
        continue;
      }
      const ChildEnd end{child->process.wait(), stopper.stopping()};
      if (options.on_end && disk_full.empty()) options.on_end(child->job, end);
      child = running.erase(child);
    }
  }
  if (!disk_full.empty()) throw base::DiskFull(disk_full);
  return stopper.reason();
}

}  // namespace mnemo::study
