#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/node.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::test {

inline const char* const kBinary = MNEMO_EXECUTABLE;

struct Finished {
  int status = -1;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A run of the program; its output goes to files, so that nothing blocks.
class Process {
 public:
  Process(const TemporaryFolder& folder, const std::vector<std::string>& arguments, const char* out = nullptr,
          const std::string& program = kBinary)
      : out_(out != nullptr ? out : folder / "stdout.txt"), err_(folder / "stderr.txt") {
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out_file = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644),
              err_file = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Process() {
    if (pid_ > 0) finish();
  }

  void signal(int number) const { kill(pid_, number); }
  pid_t pid() const { return pid_; }

  Finished finish() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            std::filesystem::is_regular_file(out_) ? content(out_) : "", content(err_)};
  }

 private:
  std::string out_, err_;
  pid_t pid_ = -1;
};

/// Waits until the condition holds, at most a minute.
inline bool wait_for(const std::function<bool()>& holds_now) {
  for (int i = 0; i < 1200; ++i) {
    if (holds_now()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

inline const char* const kRecipe = R"(
name = "tiny"
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
[train]
steps = 6
batch_size = 4
log_every = 1
eval_every = 3
[data]
valid_fraction = 0.2
test_fraction = 0.0
)";

/// Runs the program, with a small text and a tiny recipe.
class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    std::string text;
    for (int i = 0; i < 120; ++i) text += "line " + std::to_string(i * i) + " of a small text\n";
    write(text_, text);
    write(recipe_, kRecipe);
  }

  Finished run(const std::vector<std::string>& arguments) { return Process(folder_, arguments).finish(); }
  /// Runs mnemo-verify.
  Finished verify(const std::vector<std::string>& arguments) {
    return Process(folder_, arguments, nullptr, MNEMO_BINARY_DIR "/mnemo-verify").finish();
  }
  Finished run_to(const char* out, const std::vector<std::string>& arguments) {
    return Process(folder_, arguments, out).finish();
  }

  /// Trains the tiny recipe; returns the run's folder.
  std::string trained(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", recipe_, "--data", text_, "--out", folder_ / name, "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return folder_ / name;
  }

  base::Node json(const std::string& text) {
    base::ReadLimits limits;
    limits.max_bytes = 64 << 20;
    limits.max_values = 1'000'000;
    return base::parse_json(text, "output", limits);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_ / "text.txt", recipe_ = folder_ / "tiny.toml";
};

}  // namespace mnemo::test
