#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace mnemo::base {
namespace {

using Stream = ChildOptions::Stream;

/// Closed with this object, unless it is taken.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  void set(int number) { number_ = number; }
  int take() { return std::exchange(number_, -1); }

 private:
  int number_;
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& own) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    if (!own.contains(std::string(line.substr(0, line.find('='))))) all.emplace_back(line);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// The child's side of fork(), with everything allocated before it.
struct Start {
  const char* program;
  char* const* words;
  char* const* environment;
  int input, output, error;  ///< -1: as this process
  bool belongs;
  pid_t parent;

  /// Only async-signal-safe calls.
  [[noreturn]] void run() const {
    if (belongs) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(127);
      ::setpgid(0, 0);
    }
    const std::array<std::pair<int, int>, 3> streams = {
        {{input, STDIN_FILENO}, {output, STDOUT_FILENO}, {error, STDERR_FILENO}}};
    for (const auto& [from, to] : streams) {
      if (from >= 0) ::dup2(from, to);
    }
    for (const int number : {SIGINT, SIGTERM}) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      if (action.sa_handler == SIG_IGN) continue;
      action.sa_handler = SIG_DFL;
      action.sa_flags = 0;
      ::sigaction(number, &action, nullptr);
    }
    ::execvpe(program, words, environment);
    ::_exit(127);
  }
};

/// Both ends of a pipe.
void open_pipe(File& from, File& to, const std::string& program) {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "{}: cannot make a pipe: {}", program, std::strerror(errno));
  from.set(ends[0]);
  to.set(ends[1]);
}

int open_nothing(int flags) { return ::open("/dev/null", flags | O_CLOEXEC); }

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  std::vector<std::string> words = options.words, variables = environment_with(options.environment);
  const std::string program = options.program.empty() ? words.front() : options.program;
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  File input, output, error, to, from;
  if (options.input == Stream::pipe) open_pipe(input, to, program);
  if (options.input == Stream::nothing) input.set(open_nothing(O_RDONLY));
  if (options.output == Stream::pipe) open_pipe(from, output, program);
  if (options.output == Stream::nothing) output.set(open_nothing(O_WRONLY));
  if (!options.error_file.empty()) {
    error.set(::open(options.error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    require(error.number() >= 0, "{}: cannot be written: {}", options.error_file, std::strerror(errno));
  }
  const Start start{program.c_str(), argv.data(),    envp.data(),     input.number(),
                    output.number(), error.number(), options.belongs, ::getpid()};
  pid_ = ::fork();
  if (pid_ == 0) start.run();
  require(pid_ > 0, "{}: cannot start a process: {}", program, std::strerror(errno));
  input_ = to.take();
  output_ = from.take();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      end_(std::exchange(other.end_, std::nullopt)) {}

ChildProcess::~ChildProcess() {
  close_input();
  if (output_ >= 0) ::close(output_);
  if (pid_ < 0 || end_) return;
  send(SIGKILL);
  wait();
}

void ChildProcess::send(int signal) const {
  if (pid_ > 0 && !end_) ::kill(pid_, signal);
}

const std::optional<ProcessEnd>& ChildProcess::collect(int flags) {
  int status = 0;
  rusage usage{};
  pid_t found = 0;
  while (!end_ && (found = ::wait4(pid_, &status, flags, &usage)) < 0 && errno == EINTR) {
  }
  if (end_ || found != pid_) return end_;
  end_ = ProcessEnd{WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                    static_cast<int64_t>(usage.ru_maxrss) * 1024};
  return end_;
}

const std::optional<ProcessEnd>& ChildProcess::poll() { return collect(WNOHANG); }

const ProcessEnd& ChildProcess::wait() {
  ensure(collect(0).has_value(), "a child process cannot be waited for: {}", std::strerror(errno));
  return *end_;
}

bool ChildProcess::read(std::string& pending) {
  std::array<char, 4096> piece;
  const ssize_t count = ::read(output_, piece.data(), piece.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count > 0) {
    pending.append(piece.data(), static_cast<size_t>(count));
    return true;
  }
  ::close(std::exchange(output_, -1));
  return false;
}

bool ChildProcess::write(std::string_view text) const {
  return ::write(input_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void ChildProcess::close_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

std::optional<std::string> take_line(std::string& pending) {
  const size_t end = pending.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = pending.substr(0, end);
  pending.erase(0, end + 1);
  return line;
}

}  // namespace mnemo::base
