#include "bench/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "bench/rounds.h"

namespace mnemo::bench {

PeerProcess::PeerProcess(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& environment)
    : name_(command.front()) {
  int in[2], out[2];
  base::require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "{}: no pipe: {}", name_,
                std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  child_ = fork();
  base::require(child_ >= 0, "{}: cannot start a process: {}", name_, std::strerror(errno));
  if (child_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (const auto& [key, value] : environment) setenv(key.c_str(), value.c_str(), 1);
    execvp(arguments.front(), arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  const std::string first = *read_line(HUGE_VAL);
  base::require(first == "ready", "{}: expected the line \"ready\", found \"{}\"", name_, first);
}

PeerProcess::~PeerProcess() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
}

void PeerProcess::send(const std::string& line) const {
  const std::string text = line + "\n";
  base::require(write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
                "{}: the peer does not listen", name_);
}

std::optional<std::string> PeerProcess::read_line(double limit) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (std::isfinite(limit)) {
      const double left = limit - seconds_since(begin);
      pollfd ready{from_, POLLIN, 0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(std::ceil(left * 1e3))) == 0) return std::nullopt;
    }
    char piece[4096];
    const ssize_t count = read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    base::require(count > 0, "{}: the peer ended; run src/bench/setup, or see its message above", name_);
    buffer_.append(piece, static_cast<size_t>(count));
    base::require(buffer_.size() < (1 << 20), "{}: the peer's answer has no end", name_);
  }
}

std::string PeerProcess::ask(const std::string& line) { return *ask_within(line, HUGE_VAL); }

std::optional<std::string> PeerProcess::ask_within(const std::string& line, double limit) {
  send(line);
  std::optional<std::string> answer = read_line(limit);
  if (!answer) kill(child_, SIGKILL);
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
