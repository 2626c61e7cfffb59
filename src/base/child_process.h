#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// How a process ended.
struct ProcessEnd {
  int status = 0;           ///< exit status; meaningless if it was ended by a signal
  int signal = 0;           ///< signal that ended it, or 0
  int64_t peak_memory = 0;  ///< peak in bytes, as counted by the kernel (at least this program's own size when the
                            ///< child started)

  bool done() const { return status == 0 && signal == 0; }
};

struct ChildOptions {
  std::vector<std::string> words;                       ///< its command line
  std::string program = {};                             ///< file to run; empty: words[0], looked up in PATH
  std::map<std::string, std::string> environment = {};  ///< variables in place of this process's, or besides them
  enum class Stream { inherited, nothing, pipe } input = Stream::inherited, output = Stream::inherited;
  std::string error_file = {};  ///< receives its standard error; empty: as this process
  /// Whether it dies with this process, however that ends, and is in a process group of its own, which Ctrl-C does not
  /// reach.
  bool belongs = false;

  static constexpr const char* kThisProgram = "/proc/self/exe";
};

/// A process that this one has started. The signals SIGINT and SIGTERM do what they do by default there, unless they
/// are ignored here.
class ChildProcess {
 public:
  /// Throws InputError if it cannot be started. A program that is not there ends with status 127.
  explicit ChildProcess(const ChildOptions& options);
  /// Kills it if it is still there.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// Sends a signal, if it is still there.
  void send(int signal) const;
  /// How it has ended; unset while it runs.
  const std::optional<ProcessEnd>& poll();
  const ProcessEnd& wait();

  /// The end of the pipe from its standard output, for poll(2); -1 without one, and at the end of the output.
  int output() const { return output_; }
  /// Waits for output and adds it to `pending`; false at the end.
  bool read(std::string& pending);
  /// Writes to its standard input; false if it does not take it.
  bool write(std::string_view text) const;
  void close_input();

 private:
  const std::optional<ProcessEnd>& collect(int flags);

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::optional<ProcessEnd> end_;
};

/// Takes the first line, without its end, from text that arrives in pieces; unset until it is whole.
std::optional<std::string> take_line(std::string& pending);

}  // namespace mnemo::base
