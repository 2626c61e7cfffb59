#include "study/shared_trainings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

#include "base/signals.h"
#include "study/run_store.h"

namespace mnemo::study {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kStopped = "ranks that stop";
constexpr const char* kWithout = "ranks without a training";
constexpr auto kMoment = std::chrono::milliseconds(200);

bool others_stop(distributed::Group& group) { return group.add(kStopped, 0) > 0; }

/// Waits until every rank has stopped, so that each training has its checkpoint before the first rank ends and the
/// others end for it; or until all trainings have ended after all. `own`: a signal to this rank, of which another one
/// ends the wait, and with it all ranks; where others stop, a rank's first signal is part of it, and so is one within a
/// second. Returns the signal, or 0 if all trainings have ended.
int stopped(distributed::Group& group, int signal, bool own) {
  const base::SignalGuard guard;
  group.add(kStopped, 1);
  const auto begun = std::chrono::steady_clock::now();
  bool part = !own;
  while (group.add(kWithout, 0) < group.size() && group.add(kStopped, 0) < group.size()) {
    const bool at_once = std::chrono::steady_clock::now() - begun < std::chrono::seconds(1);
    part = part || (at_once && base::pending_signal() != 0);
    if (!part && base::pending_signal() != 0) {
      group.report_failure(fmt::format("stopped by signal {}", base::pending_signal()));
      return signal;
    }
    std::this_thread::sleep_for(kMoment);
  }
  if (group.add(kWithout, 0) == group.size()) return 0;
  group.leave();
  return signal;
}

/// Waits for the others' trainings, which take hours: no collective does, for it has a time-out. Returns the signal
/// that stopped this rank, SIGTERM where another one stops, or 0.
int wait_for_all(distributed::Group& group) {
  const base::SignalGuard guard;
  group.add(kWithout, 1);
  while (group.add(kWithout, 0) < group.size()) {
    const int signal = base::pending_signal();
    if (signal != 0 || others_stop(group)) return stopped(group, signal != 0 ? signal : SIGTERM, false);
    std::this_thread::sleep_for(kMoment);
  }
  return 0;
}

}  // namespace

int run_shared_trainings(distributed::Group& group, const std::vector<std::string>& folders,
                         const SharedOptions& options) {
  const std::vector<std::string> all = lines_of(group.broadcast(fmt::format("{}", fmt::join(folders, "\n"))));
  std::string ends;
  while (true) {
    const auto next = static_cast<size_t>(group.add("trainings begun", 1) - 1);
    if (next >= all.size()) break;
    std::vector<std::string> words = {"compare", "--job", all[next], "--threads", std::to_string(options.threads)};
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    ChildrenOptions children;
    children.threads = options.threads;
    children.program = options.program;
    children.on_start = [&](size_t) {
      if (options.on_start) options.on_start(next);
    };
    children.on_line = [&](size_t, std::string_view line) {
      if (options.on_line) options.on_line(next, line);
    };
    children.stop = [&] { return others_stop(group); };
    children.on_end = [&](size_t, const ChildEnd& end) {
      ends += fmt::format("{} {} {} {} {}\n", next, end.status, end.signal, end.peak_memory, end.told_to_stop ? 1 : 0);
      if (options.on_end) options.on_end(next, end);
    };
    if (const int signal = run_children({{std::move(words), output_file(all[next])}}, children); signal != 0)
      return stopped(group, signal, true);
  }
  if (const int signal = wait_for_all(group); signal != 0) return signal;
  const std::vector<std::string> by_rank = group.gather(ends);
  if (group.rank() != 0 || !options.on_end) return 0;
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    for (const std::string& line : lines_of(by_rank[rank])) {
      ChildEnd end;
      size_t training = 0;
      int told = 0;
      if (std::sscanf(line.c_str(), "%zu %d %d %ld %d", &training, &end.status, &end.signal, &end.peak_memory, &told) !=
          5)
        continue;
      end.told_to_stop = told != 0;
      if (options.on_start) options.on_start(training);
      options.on_end(training, end);
    }
  }
  return 0;
}

}  // namespace mnemo::study
