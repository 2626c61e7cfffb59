#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"

namespace mnemo::bench {

/// A long-lived child process that answers each line with one line; for benchmarks against another program.
class PeerProcess {
 public:
  enum class Start { wait, go_on };
  /// Starts `command` with these variables added to the environment and waits for its line "ready", now or before it
  /// is asked anything. Throws InputError if it cannot be started or exits.
  PeerProcess(const std::vector<std::string>& command,
              const std::vector<std::pair<std::string, std::string>>& environment, Start start = Start::wait);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Sends a line and returns the line that comes back. Throws InputError if the child ends.
  std::string ask(const std::string& line);
  /// ask() with a time limit in seconds: returns nothing if the answer takes longer. The child is then killed and
  /// cannot be asked again.
  std::optional<std::string> ask_within(const std::string& line, double limit);
  /// The two halves of ask_within().
  void send(const std::string& line);
  std::optional<std::string> answer_within(double limit);
  /// Asks, and reads the answer as seconds. Throws InputError if the answer is invalid.
  double seconds(const std::string& line) { return number(ask(line)); }
  /// A non-negative number from an answer. Throws InputError if it is not one.
  double number(const std::string& answer) const;

 private:
  void wait_until_ready();
  /// Nothing if no whole line arrives within the limit.
  std::optional<std::string> read_line(double limit);

  std::string name_, buffer_;
  bool ready_ = false;
  base::ChildProcess child_;
};

}  // namespace mnemo::bench
