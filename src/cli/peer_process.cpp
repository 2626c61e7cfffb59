#include "cli/peer_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace mnemo::cli {

PeerProcess::PeerProcess(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& environment)
    : name_(command.front()) {
  int in[2], out[2];
  base::require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "{}: no pipe: {}", name_, std::strerror(errno));
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
  const std::string first = read_line();
  base::require(first == "ready", "{}: expected the line \"ready\", found \"{}\"", name_, first);
}

PeerProcess::~PeerProcess() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
}

std::string PeerProcess::read_line() {
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char piece[4096];
    const ssize_t count = read(from_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    base::require(count > 0, "{}: the peer ended; run benchmarks/setup, or see its message above", name_);
    buffer_.append(piece, static_cast<size_t>(count));
    base::require(buffer_.size() < (1 << 20), "{}: the peer's answer has no end", name_);
  }
}

std::string PeerProcess::ask(const std::string& line) {
  const std::string text = line + "\n";
  base::require(write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "{}: the peer does not listen", name_);
  return read_line();
}

double PeerProcess::seconds(const std::string& line) {
  const std::string answer = ask(line);
  char* end = nullptr;
  const double seconds = std::strtod(answer.c_str(), &end);
  base::require(end != answer.c_str() && *end == '\0' && seconds >= 0, "{}: expected seconds, found \"{}\"", name_, answer);
  return seconds;
}

}  // namespace mnemo::cli
