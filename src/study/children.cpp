#include "study/children.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>

#include "base/error.h"
#include "base/log.h"

extern char** environ;

namespace mnemo::study {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAtOnce = std::chrono::seconds(1);  // `timeout` signals both the process and its group: count that as
                                                   // one request

volatile sig_atomic_t signals_seen = 0;
volatile sig_atomic_t last_signal = 0;

void note_signal(int signal) {
  last_signal = signal;
  signals_seen = signals_seen + 1;
}

/// Counts SIGINT and SIGTERM during its lifetime.
class SignalGuard {
 public:
  SignalGuard() {
    signals_seen = 0;
    last_signal = 0;
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~SignalGuard() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

std::string own_program() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  base::require(length > 0, "cannot find this program's own file (/proc/self/exe): {}", std::strerror(errno));
  path.resize(static_cast<size_t>(length));
  return path;
}

/// The environment with the number of threads set. Built before fork(), while allocating memory is still safe.
std::vector<std::string> child_environment(int64_t threads) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("OMP_NUM_THREADS=")) variables.emplace_back(*variable);
  }
  variables.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

class Child {
 public:
  Child(size_t job, const ChildJob& spec, const std::string& program, std::vector<std::string>& environment)
      : job_(job) {
    std::vector<std::string> words = {"mnemo"};
    words.insert(words.end(), spec.arguments.begin(), spec.arguments.end());
    const std::vector<char*> argv = pointers(words), envp = pointers(environment);
    const int log = ::open(spec.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    base::require(log >= 0, "{}: cannot be written: {}", spec.log, std::strerror(errno));
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      const int error = errno;
      ::close(log);
      base::input_error("cannot make a pipe: {}", std::strerror(error));
    }
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) start(program.c_str(), argv.data(), envp.data(), ends[1], log, parent);
    const int error = errno;
    ::close(log);
    ::close(ends[1]);
    output_ = ends[0];
    if (pid_ < 0) {
      ::close(output_);
      base::input_error("cannot start a process: {}", std::strerror(error));
    }
  }
  ~Child() {
    if (output_ >= 0) ::close(output_);
    if (end_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  size_t job() const { return job_; }
  int output() const { return output_; }
  void stop(int signal) const { ::kill(pid_, signal); }
  const std::optional<ChildEnd>& end() const { return end_; }

  /// Passes on the lines that have arrived. At the end of the output, waits for the process.
  template <class OnLine>
  void read(OnLine on_line) {
    char bytes[4096];
    const ssize_t count = ::read(output_, bytes, sizeof(bytes));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count > 0) {
      pending_.append(bytes, static_cast<size_t>(count));
      size_t begin = 0;
      for (size_t at; (at = pending_.find('\n', begin)) != std::string::npos; begin = at + 1) {
        on_line(std::string_view(pending_).substr(begin, at - begin));
      }
      pending_.erase(0, begin);
      return;
    }
    ::close(output_);
    output_ = -1;
    wait();
  }

 private:
  /// Only async-signal-safe calls between fork and exec.
  [[noreturn]] static void start(const char* program, char* const* argv, char* const* envp, int output, int log,
                                 pid_t parent) {
#ifdef __linux__
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);  // Ctrl-C reaches only the parent, which stops the children
    ::dup2(output, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGINT, &standard, nullptr);
    ::sigaction(SIGTERM, &standard, nullptr);
    ::execve(program, argv, envp);
    ::_exit(127);
  }

  void wait() {
    int status = 0;
    rusage usage{};
    while (::wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    end_ = ChildEnd{WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                    static_cast<int64_t>(usage.ru_maxrss) * 1024};
  }

  size_t job_;
  pid_t pid_ = -1;
  int output_ = -1;
  std::string pending_;
  std::optional<ChildEnd> end_;
};

/// Forwards signals to the children: the first one asks them to stop, as ChildrenOptions::stop does; a second one
/// kills them.
class Stopper {
 public:
  explicit Stopper(std::function<bool()> asked) : asked_(std::move(asked)) {}
  bool stopping() const { return told_ > 0; }
  /// The signal that stopped them; SIGTERM if they were stopped without one.
  int signal() const { return !stopping() ? 0 : last_signal != 0 ? static_cast<int>(last_signal) : SIGTERM; }

  void inspect(const std::list<Child>& children) {
    const int seen = signals_seen;
    if (seen == 0 && told_ == 0 && !(asked_ && asked_())) return;
    if (told_ == 0) {
      since_ = Clock::now();
      told_ = 1;
      answered_ = seen == 0 ? 1 : seen;  // where others stop, the first signal is part of it
      base::log_warning("stopping {} training{} after a checkpoint; again to stop now", children.size(),
                        children.size() == 1 ? "" : "s");
      for (const Child& child : children) child.stop(SIGTERM);
    }
    const auto waited = Clock::now() - since_;
    if (waited < kAtOnce) answered_ = std::max(answered_, seen);
    if (told_ == 1 && seen > answered_) {
      told_ = 2;
      for (const Child& child : children) child.stop(SIGKILL);
    }
  }

 private:
  std::function<bool()> asked_;
  int told_ = 0;
  int answered_ = 0;  // signals that belong to the first request
  Clock::time_point since_{};
};

}  // namespace

int run_children(const std::vector<ChildJob>& jobs, const ChildrenOptions& options) {
  const std::string program = options.program.empty() ? own_program() : options.program;
  std::vector<std::string> environment = child_environment(options.threads);
  const SignalGuard guard;
  Stopper stopper(options.stop);
  std::list<Child> running;
  size_t next = 0;
  while (!running.empty() || (next < jobs.size() && !stopper.stopping())) {
    while (!stopper.stopping() && next < jobs.size() && running.size() < static_cast<size_t>(options.jobs)) {
      running.emplace_back(next, jobs[next], program, environment);
      if (options.on_start) options.on_start(next);
      ++next;
    }
    std::vector<pollfd> waiting;
    for (const Child& child : running) waiting.push_back({child.output(), POLLIN, 0});
    const int ready = ::poll(waiting.data(), waiting.size(), 200);
    stopper.inspect(running);
    if (ready <= 0) continue;
    size_t i = 0;
    for (auto child = running.begin(); child != running.end(); ++i) {
      if (waiting[i].revents != 0) {
        child->read([&](std::string_view line) {
          if (options.on_line) options.on_line(child->job(), line);
        });
      }
      if (!child->end()) {
        ++child;
        continue;
      }
      ChildEnd end = *child->end();
      end.told_to_stop = stopper.stopping();
      if (options.on_end) options.on_end(child->job(), end);
      child = running.erase(child);
    }
  }
  return stopper.signal();
}

}  // namespace mnemo::study
