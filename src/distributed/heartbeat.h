#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/group.h"

namespace mnemo::distributed {

/// Ends this process with a line on standard error.
[[noreturn]] void end_process(const std::string& failure);

/// A rank as messages name it, "rank 1 (host, step 40)", by its last beat in the store; without one it is of this
/// machine.
std::string named_by(c10d::Store& store, int64_t rank);

/// Writes a failure for all ranks to read; the first one stays.
void publish_failure(c10d::Store& store, const std::string& message);

/// A sign of life between the ranks of a training, beside their collectives: each rank writes a beat to a store every
/// second and reads those of the others, from a thread that ends this process when one is silent or has failed.
class Heartbeat {
 public:
  /// store: for this alone, since an answer may keep it waiting.
  Heartbeat(const Place& place, const GroupOptions& options, c10::intrusive_ptr<c10d::Store> store);
  ~Heartbeat() { stop(); }

  /// Writes this rank's beat.
  void send();
  /// Starts the thread, once all ranks are here.
  void start();
  void stop();
  /// From here on others may end before this rank does.
  void leave() { leaving_ = true; }

  void begin_collective() { ++collectives_; }
  void note_step(int64_t step);
  /// Tells the others of this rank's failure.
  void report(const std::string& message);

  /// Which ranks have not been at the store; `words` where that cannot be told.
  std::string absent(const std::string& words);
  /// After a collective failed: who reported a failure, who is silent, or who is behind.
  std::string diagnose(const std::string& words);

 private:
  using Clock = std::chrono::steady_clock;

  /// One line in the store: host, number of the beat, collectives begun, step (-1 outside a training).
  struct Beat {
    std::string host;
    int64_t count = 0, collectives = 0, step = -1;
    Clock::time_point seen = Clock::now();

    std::string text() const;
    void read(const std::string& text);
    double age() const { return std::chrono::duration<double>(Clock::now() - seen).count(); }
  };
  friend std::string named_by(c10d::Store& store, int64_t rank);

  std::unique_lock<std::timed_mutex> locked();
  void publish(const std::string& message);
  std::optional<std::string> read_beats();
  std::string named(int64_t other) const;
  std::string log_of(int64_t other) const;
  std::string store_lost() const;
  std::string silent_or_failed();
  void watch();

  Place place_;
  GroupOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::timed_mutex mutex_;  ///< of store_ and beats_
  std::vector<Beat> beats_;
  std::optional<Clock::time_point> failure_seen_;
  std::atomic<int64_t> count_{0}, collectives_{0}, step_{-1};
  std::atomic<bool> stopped_{false}, leaving_{false};
  std::thread thread_;
};

}  // namespace mnemo::distributed
