#include "cli/ranks.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/machine.h"
#include "cli/application.h"
#include "cli/signals.h"
#include "distributed/spawn.h"
#include "runs/training.h"

namespace mnemo::cli {
namespace {

std::string log_of(const std::string& folder, int64_t rank) {
  return folder.empty() ? "" : base::join_path(folder, fmt::format("rank-{}.log", rank));
}

/// Redirects everything that this process prints to the file; without one, only logs are kept.
void write_to(const std::string& path) {
  if (path.empty()) {
    base::set_log_level(base::LogLevel::warning);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
    return;
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  base::require(file >= 0, "{}: cannot be written: {}", path, std::strerror(errno));
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  close(file);
}

/// Throws InputError where this process may not open the files and connections of so many ranks: c10d would end it, or
/// wait for ever.
void require_descriptors(int64_t ranks) {
  const int64_t needed = 32 + 3 * ranks, most = base::allow_open_files(needed);
  base::require(most >= needed,
                "several processes: {} ranks need {} open files and connections, this process may have {}; raise the "
                "limit (ulimit -n)",
                ranks, needed, most);
}

}  // namespace

void add_ranks(Command& command, Ranks& ranks, const std::string& about) {
  command.allow_ranks()
      .option("--processes", ranks.processes, "N", about)
      .option("--rank-timeout", ranks.timeout, "SECONDS",
              "several processes: stop if one of them is silent or late for this long (default 600)",
              base::range(5, 1 << 20));
}

void begin_sharing(const std::shared_ptr<distributed::Group>& group, const std::string& command,
                   const core::Model& model) {
  if (group == nullptr) return;
  at::set_num_threads(std::max<int>(1, at::get_num_threads() / static_cast<int>(group->place().local_size)));
  const std::string words = base::read_file("/proc/self/cmdline");
  auto entries = distributed::program_entries();
  entries.emplace_back("command line", base::sha256(words.substr(std::min(words.size(), words.find('\0')))));
  entries.emplace_back("model", runs::weights_sha256(model));
  group->require_same(entries, command);
}

int on_ranks(const Ranks& ranks, const std::string& folder,
             const std::function<int(const std::shared_ptr<distributed::Group>& group)>& work) {
  const std::optional<distributed::Place> place = distributed::place_from();
  const bool started_here = place && place->launcher == distributed::Launcher::processes;
  base::require(!ranks.processes || !place || started_here,
                "{}: --processes: this process is already rank {} of {} (set in its environment); drop the option",
                ranks.command, place ? place->rank : 0, place ? place->size : 0);
  base::require(!ranks.timeout || ranks.processes || place,
                "{}: --rank-timeout is for several processes, found one; drop it, or start several", ranks.command);
  if (ranks.processes && !started_here) {
    base::require(*ranks.processes >= 1 && *ranks.processes <= 1024, "{}: --processes: expected 1 to 1024, found {}",
                  ranks.command, *ranks.processes);
    base::require(
        distributed::available(),
        "{}: --processes: this build has no c10d: install Gloo's headers (Debian: libgloo-dev), configure and "
        "build again",
        ranks.command);
    require_descriptors(*ranks.processes);
    if (!folder.empty()) base::make_folders(folder);
    const SignalCount signals;
    return distributed::run_processes({.processes = *ranks.processes,
                                       .log = [&](int64_t rank) { return log_of(folder, rank); },
                                       .signals = SignalCount::count,
                                       .last_signal = SignalCount::last});
  }
  if (!place || (place->size == 1 && place->launcher != distributed::Launcher::processes)) return work(nullptr);
  require_descriptors(place->size);
  if (place->rank != 0) {
    if (!folder.empty()) base::make_folders(folder);
    write_to(log_of(folder, place->rank));
  }
  const auto log = [folder](int64_t rank) { return rank == 0 ? "" : log_of(folder, rank); };
  distributed::GroupOptions options{.log = log};
  if (ranks.timeout) options.timeout = std::chrono::seconds(*ranks.timeout);
  const auto group = distributed::Group::join(*place, options);
  // Its end would wait for collectives that a lost rank keeps open: only leave() ends it, or the process.
  static std::vector<std::shared_ptr<distributed::Group>> kept;
  kept.push_back(group);
  base::log_info("rank {} of {} on {}, process {}", place->rank, place->size, base::host_name(), getpid());
  try {
    return work(group);
  } catch (const distributed::RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    group->report_failure(place->rank == 0 || folder.empty()
                              ? error.what()
                              : fmt::format("{}; its log: {}", error.what(), log_of(folder, place->rank)));
    throw;
  }
}

}  // namespace mnemo::cli
