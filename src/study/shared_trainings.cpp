#include "study/shared_trainings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

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

/// The wishes of this rank to stop.
class Wishes {
 public:
  explicit Wishes(const SharedOptions& options) : options_(options) {}
  int reason() const { return options_.should_stop ? options_.should_stop() : 0; }
  int count() const { return options_.wishes ? options_.wishes() : reason() != 0 ? 1 : 0; }

 private:
  const SharedOptions& options_;
};

/// Waits until every rank has stopped, so that each training has its checkpoint before the first rank ends and the
/// others end for it; or until all trainings have ended after all. Another wish of this rank ends the wait, and with it
/// all ranks; one within a second is part of the first, and where others stop so is a rank's first one. Returns the
/// reason, or 0 if all trainings have ended.
int stopped(distributed::Group& group, int reason, const Wishes& wishes) {
  group.add(kStopped, 1);
  const auto begun = std::chrono::steady_clock::now();
  int answered = std::max(wishes.count(), 1);
  while (group.add(kWithout, 0) < group.size() && group.add(kStopped, 0) < group.size()) {
    const bool at_once = std::chrono::steady_clock::now() - begun < std::chrono::seconds(1);
    if (at_once) answered = std::max(answered, wishes.count());
    if (wishes.count() > answered) {
      group.report_failure(fmt::format("stopped by signal {}", wishes.reason()));
      return reason;
    }
    std::this_thread::sleep_for(kMoment);
  }
  if (group.add(kWithout, 0) == group.size()) return 0;
  group.leave();
  return reason;
}

/// Waits for the others' trainings, which take hours: no collective does, for it has a time-out. Returns the reason
/// that stopped this rank, SIGTERM where another one stops, or 0.
int wait_for_all(distributed::Group& group, const Wishes& wishes) {
  group.add(kWithout, 1);
  while (group.add(kWithout, 0) < group.size()) {
    const int reason = wishes.reason();
    if (reason != 0 || others_stop(group)) return stopped(group, reason != 0 ? reason : SIGTERM, wishes);
    std::this_thread::sleep_for(kMoment);
  }
  return 0;
}

}  // namespace

int run_shared_trainings(distributed::Group& group, const std::vector<std::string>& folders,
                         const SharedOptions& options) {
  const std::vector<std::string> all = lines_of(group.broadcast(fmt::format("{}", fmt::join(folders, "\n"))));
  const Wishes wishes(options);
  std::string ends;
  while (true) {
    const auto next = static_cast<size_t>(group.add("trainings begun", 1) - 1);
    if (next >= all.size()) break;
    std::vector<std::string> words = {"compare", "--job", all[next]};
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
    children.should_stop = [&] {
      const int reason = wishes.reason();
      return reason != 0 ? reason : others_stop(group) ? SIGTERM : 0;
    };
    children.wishes = [&] { return wishes.count(); };
    children.on_end = [&](size_t, const ChildEnd& end) {
      ends += fmt::format("{} {} {} {} {}\n", next, end.status, end.signal, end.peak_memory, end.told_to_stop ? 1 : 0);
      if (options.on_end) options.on_end(next, end);
    };
    if (const int reason = run_children({{std::move(words), output_file(all[next])}}, children); reason != 0)
      return stopped(group, reason, wishes);
  }
  if (const int reason = wait_for_all(group, wishes); reason != 0) return reason;
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
