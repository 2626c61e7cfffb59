#include "bench/peer_process.h"

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "bench/rounds.h"

namespace mnemo::bench {

PeerProcess::PeerProcess(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& environment, Start start)
    : name_(command.front()),
      child_({.words = command,
              .environment = {environment.begin(), environment.end()},
              .input = base::ChildOptions::Stream::pipe,
              .output = base::ChildOptions::Stream::pipe}) {
  if (start == Start::wait) wait_until_ready();
}

void PeerProcess::wait_until_ready() {
  if (ready_) return;
  const std::string first = *read_line(HUGE_VAL);
  base::require(first == "ready", "{}: expected the line \"ready\", found \"{}\"", name_, first);
  ready_ = true;
}

PeerProcess::~PeerProcess() {
  child_.close_input();
  child_.wait();
}

void PeerProcess::send(const std::string& line) {
  wait_until_ready();
  base::require(child_.write(line + "\n"), "{}: the peer does not listen", name_);
}

std::optional<std::string> PeerProcess::read_line(double limit) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    if (auto line = base::take_line(buffer_)) return line;
    if (std::isfinite(limit)) {
      const double left = limit - seconds_since(begin);
      pollfd ready{child_.output(), POLLIN, 0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(std::ceil(left * 1e3))) == 0) return std::nullopt;
    }
    base::require(child_.read(buffer_), "{}: the peer ended; run bench/setup, or see its message above", name_);
    base::require(buffer_.size() < (1 << 20), "{}: the peer's answer has no end", name_);
  }
}

std::string PeerProcess::ask(const std::string& line) { return *ask_within(line, HUGE_VAL); }

std::optional<std::string> PeerProcess::ask_within(const std::string& line, double limit) {
  send(line);
  return answer_within(limit);
}

std::optional<std::string> PeerProcess::answer_within(double limit) {
  std::optional<std::string> answer = read_line(limit);
  if (!answer) child_.send(SIGKILL);
  return answer;
}

double PeerProcess::number(const std::string& answer) const {
  char* end = nullptr;
  const double number = std::strtod(answer.c_str(), &end);
  base::require(end != answer.c_str() && *end == '\0' && number >= 0, "{}: expected a number, found \"{}\"", name_,
                answer);
  return number;
}

}  // namespace mnemo::bench
