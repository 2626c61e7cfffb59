#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace mnemo::base {

struct ProgressOptions {
  std::string unit = "steps";        ///< what is counted: "12.3 steps/s"
  double plain_interval = 10;        ///< seconds between log lines when there is no terminal
  double bar_interval = 0.1;         ///< seconds between redraws of the bar
  int64_t start = 0;                 ///< steps done before this run was resumed, which do not count towards the speed
  std::function<double()> now = {};  ///< seconds since any origin; the steady clock if empty
};

/// Shows the progress of a long job on this thread's console: on a terminal a bar with speed and remaining time on the
/// status line, otherwise a log line every few seconds. A console with on_progress gets every update instead.
class Progress {
 public:
  /// `total` steps; 0 or less when unknown.
  Progress(std::string name, int64_t total, ProgressOptions options = {});
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `done` steps are done; `note` is shown at the end ("loss 2.31"). Cheap between redraws.
  void update(int64_t done, std::string_view note = {});
  /// "train 420/1000 (42 %), 12.3 steps/s, 0:47 left, loss 2.31"
  std::string plain_text(std::string_view note) const;
  /// "train [=====>    ] 42 %  420/1000  12.3 steps/s  0:47 left  loss 2.31", at most `columns` wide if name and note
  /// are: the bar becomes shorter, and then the speed, the count, the time left and it are left out, in this order.
  std::string bar_text(std::string_view note, size_t columns) const;

 private:
  double steps_per_second() const;
  std::string time_left() const;

  std::string name_;
  int64_t total_;
  ProgressOptions options_;
  double began_;
  std::optional<double> shown_;
  double last_ = 0;
  int64_t done_;
  bool drawn_ = false;
};

/// "0:47", "12:05", "3:00:10", "2 d 03:00"
std::string duration_text(double seconds);

/// Three significant digits: "0.0123", "12.3", "1234", "1.2 M"
std::string rate_text(double per_second);

}  // namespace mnemo::base
