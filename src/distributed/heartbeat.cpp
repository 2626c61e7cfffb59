#include "distributed/heartbeat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/exit_status.h"
#include "base/machine.h"

namespace mnemo::distributed {
namespace {

constexpr const char* kFailure = "failure";

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::string beat_key(int64_t rank) { return fmt::format("beat/{}", rank); }

std::string name_of(int64_t rank, const std::string& host, int64_t step) {
  return fmt::format("rank {} ({}{})", rank, host.empty() ? "unknown host" : host,
                     step < 0 ? "" : fmt::format(", step {}", step));
}

}  // namespace

void end_process(const std::string& failure) {
  const std::string line = fmt::format("mnemo: error: {}\n", failure);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  ::_exit(base::kAnswerIsNo);
}

std::string Heartbeat::Beat::text() const { return fmt::format("{} {} {} {}", count, collectives, step, host); }

void Heartbeat::Beat::read(const std::string& text) {
  const int64_t before = count;
  std::array<char, 256> name{};
  if (std::sscanf(text.c_str(), "%ld %ld %ld %255s", &count, &collectives, &step, name.data()) == 4) host = name.data();
  if (count != before) seen = Clock::now();
}

std::string named_by(c10d::Store& store, int64_t rank) {
  Heartbeat::Beat beat;
  beat.host = base::host_name();
  try {
    if (store.check({beat_key(rank)})) beat.read(text_of(store.get(beat_key(rank))));
  } catch (const std::exception&) {  // no step, then
  }
  return name_of(rank, beat.host, beat.step);
}

void publish_failure(c10d::Store& store, const std::string& message) {
  store.compareSet(kFailure, {}, bytes_of(message));
}

Heartbeat::Heartbeat(const Place& place, const GroupOptions& options, c10::intrusive_ptr<c10d::Store> store)
    : place_(place), options_(options), store_(std::move(store)), beats_(static_cast<size_t>(place.size)) {}

void Heartbeat::start() {
  if (options_.watches) thread_ = std::thread([this] { watch(); });
}

void Heartbeat::stop() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::send() {
  Beat mine;
  mine.host = base::host_name();
  mine.count = ++count_;
  mine.collectives = collectives_;
  mine.step = step_;
  const auto lock = locked();
  store_->set(beat_key(place_.rank), bytes_of(mine.text()));
}

void Heartbeat::note_step(int64_t step) {
  const bool first = step_.exchange(step) < 0;
  try {
    if (first) send();
  } catch (const std::exception&) {  // the next collective finds out
  }
}

void Heartbeat::report(const std::string& message) {
  publish(fmt::format("{}: {}", name_of(place_.rank, base::host_name(), step_), message));
}

/// A store that has stopped answering keeps the thread that asked it for ever.
std::unique_lock<std::timed_mutex> Heartbeat::locked() {
  std::unique_lock<std::timed_mutex> lock(mutex_, std::chrono::seconds(3));
  if (!lock.owns_lock()) throw RankFailure("the store does not answer");
  return lock;
}

void Heartbeat::publish(const std::string& message) {
  const auto lock = locked();
  publish_failure(*store_, message);
}

/// Reads the others' beats; returns a rank's report of a failure, or nothing. Throws if the store does not answer.
std::optional<std::string> Heartbeat::read_beats() {
  const auto lock = locked();
  if (store_->check({kFailure})) return text_of(store_->get(kFailure));
  for (int64_t other = 0; other < place_.size; ++other)
    beats_[static_cast<size_t>(other)].read(text_of(store_->get(beat_key(other))));
  return std::nullopt;
}

/// The other rank's last beat may be a second old; it has done its part of every step that this rank has done.
std::string Heartbeat::named(int64_t other) const {
  const Beat& beat = beats_[static_cast<size_t>(other)];
  return name_of(other, beat.host, std::max(beat.step, step_.load()));
}

std::string Heartbeat::log_of(int64_t other) const {
  const std::string file = options_.log ? options_.log(other) : "";
  return file.empty() ? "" : "; its log: " + file;
}

std::string Heartbeat::absent(const std::string& words) {
  std::string ranks;
  try {
    for (int64_t other = 0; other < place_.size; ++other) {
      if (!store_->check({beat_key(other)})) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", other);
    }
  } catch (const std::exception&) {  // nor can the store
  }
  return ranks.empty() ? words : fmt::format("rank {} did not come", ranks);
}

std::string Heartbeat::diagnose(const std::string& words) {
  try {
    for (int i = 0; i < 15; ++i) {
      if (const auto reported = read_beats()) return *reported;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    int64_t oldest = -1, behind = -1;
    for (int64_t other = 0; other < place_.size; ++other) {
      if (other == place_.rank) continue;
      const Beat& beat = beats_[static_cast<size_t>(other)];
      if (beat.age() > 2.5 && (oldest < 0 || beat.age() > beats_[static_cast<size_t>(oldest)].age())) oldest = other;
      if (behind < 0 || beat.collectives < beats_[static_cast<size_t>(behind)].collectives) behind = other;
    }
    const std::string message = oldest >= 0 ? fmt::format("{} has ended or cannot be reached ({}){}", named(oldest),
                                                          words, log_of(oldest))
                                            : fmt::format("{} did not come within {} s ({}){}", named(behind),
                                                          options_.timeout.count(), words, log_of(behind));
    publish(message);
    return message;
  } catch (const std::exception&) {
    return store_lost();
  }
}

std::string Heartbeat::store_lost() const {
  if (place_.hosted)
    return fmt::format("the launcher's store at {}:{} does not answer any more", place_.address, place_.port);
  return fmt::format("{} has ended or cannot be reached: its store at {}:{} does not answer", named(0), place_.address,
                     place_.port);
}

/// Why this process has to end, or nothing.
std::string Heartbeat::silent_or_failed() {
  send();
  if (const auto reported = read_beats()) {
    // When a connection breaks, collectives fail at once with a better message; this is for those that stay up.
    if (!failure_seen_) failure_seen_ = Clock::now();
    if (Clock::now() - *failure_seen_ > std::chrono::seconds(2)) return *reported;
  }
  const double limit = static_cast<double>(options_.timeout.count());
  for (int64_t other = 0; other < place_.size; ++other) {
    if (other == place_.rank || beats_[static_cast<size_t>(other)].age() <= limit) continue;
    const std::string failure = fmt::format("{} has been silent for {} s{}", named(other), options_.timeout.count(),
                                            log_of(other));
    publish(failure);
    return failure;
  }
  return {};
}

/// Every second until the end: says that this rank lives, and looks whether the others do.
void Heartbeat::watch() {
  while (!stopped_) {
    std::string failure;
    try {
      failure = silent_or_failed();
    } catch (const std::exception&) {
      failure = store_lost();
    }
    if (!failure.empty() && !stopped_ && !leaving_) end_process(failure);
    for (int i = 0; i < 10 && !stopped_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace mnemo::distributed
