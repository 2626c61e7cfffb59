// Jobs of several processes: lost and stopped ranks, launchers, ranks that do not fit together.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/file_io.h"
#include "base/machine.h"
#include "base/node.h"
#include "tests/integration/ranks.h"
#include "weights/checkpoint.h"

namespace mnemo {
namespace {

using test::content;
using test::Finished;
using test::holds;

class RankJobs : public Ranks {
 protected:
  /// The process of a rank, as its log says.
  pid_t pid_of(const std::string& log, int64_t rank) const {
    const std::string text = content(folder_ / log), start = fmt::format("rank {} of ", rank);
    const size_t line = text.rfind(start), at = line == std::string::npos ? line : text.find("process ", line);
    return at == std::string::npos ? -1 : static_cast<pid_t>(std::atoi(text.c_str() + at + 8));
  }
  /// "rank 1 (host, step 40)", at whichever step.
  static void expect_named(const std::string& text, int64_t rank) {
    EXPECT_TRUE(holds(text, fmt::format("rank {} ({}, step ", rank, base::host_name()))) << text;
  }
  /// A training without end; returns when its first checkpoint is there, with the process of rank 1.
  struct Endless {
    std::unique_ptr<test::Process> process;
    pid_t rank1;
  };
  Endless endless(const std::string& timeout) const {
    auto process = std::make_unique<test::Process>(
        folder_, std::vector<std::string>{"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--processes",
                                          "2", "--rank-timeout", timeout, "--set", "train.steps=10000000", "--set",
                                          "train.log_every=1000"});
    EXPECT_TRUE(test::wait_for([&] { return base::path_exists(step("run", 4)); })) << content(folder_ / "stderr.txt");
    const pid_t rank1 = pid_of("run/rank-1.log", 1);
    EXPECT_GT(rank1, 1);
    return {std::move(process), rank1};
  }

  /// study.toml: two variants of the recipe and `more`, with these keys of [train].
  void write_study(const std::string& train_keys, const std::string& more = "") const {
    test::write(folder_ / "study.toml", fmt::format(R"(base = "recipe.toml"
name = "Caches"
[train]
{}
[[study]]
name = "Caches"
[[study.variant]]
name = "none"
model.memory = []
[[study.variant]]
name = "short"
model.memory = [{{ type = "segment_cache", mem_len = 4 }}]
{})",
                                                    train_keys, more));
  }

  /// The endless run of above, three steps more on one process.
  Finished run_on() const {
    int64_t last = 0;
    for (const std::string& name : base::list_folder(folder_ / "run")) {
      if (name.starts_with("step-")) last = std::max(last, static_cast<int64_t>(std::atoll(name.c_str() + 5)));
    }
    return run({"train", "--resume", folder_ / "run", "--set", "train.steps=" + std::to_string(last + 3)});
  }
};

TEST_F(RankJobs, AKilledRankEndsAllWithItsName) {
  Endless run = endless("60");
  const auto began = std::chrono::steady_clock::now();
  kill(run.rank1, SIGKILL);
  const Finished done = run.process->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(65));
  EXPECT_EQ(done.status, 1) << done.err;
  expect_named(done.err, 1);
  EXPECT_TRUE(holds(done.err, "signal 9")) << done.err;
  EXPECT_TRUE(holds(done.err, "rank-1.log")) << done.err;
  // And goes on from the last checkpoint.
  const Finished more = run_on();
  EXPECT_EQ(more.status, 0) << more.err;
}

TEST_F(RankJobs, AStoppedRankEndsAllAfterTheTimeout) {
  Endless run = endless("8");
  const auto began = std::chrono::steady_clock::now();
  kill(run.rank1, SIGSTOP);
  const Finished done = run.process->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));  // a busy machine takes its time
  EXPECT_EQ(done.status, 1) << done.err;
  expect_named(done.err, 1);
}

/// Rank 0, whose process has the store where the ranks meet, hangs or is killed.
TEST_F(RankJobs, WithoutRankZeroTheOthersEndWithItsName) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    const std::string port = std::to_string(test::free_port()), name = "run" + std::to_string(signal);
    const std::vector<std::string> words = {"train",        folder_ / "recipe.toml", "--out",
                                            folder_ / name, "--rank-timeout",        "8",
                                            "--set",        "train.steps=10000000"};
    const auto first = start_rank(0, port, words), second = start_rank(1, port, words);
    EXPECT_TRUE(test::wait_for([&] { return base::path_exists(step(name, 4)); }));
    first->signal(signal);
    const auto began = std::chrono::steady_clock::now();
    const Finished done = second->finish();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
    EXPECT_EQ(done.status, 1);
    expect_named(content(folder_ / (name + "/rank-1.log")), 0);
    first->signal(SIGKILL);
  }
}

/// Without --processes no parent sees the signal; the other ranks find out.
TEST_F(RankJobs, ALostRankIsNamedWithItsLog) {
  const std::string port = std::to_string(test::free_port());
  const std::vector<std::string> words = {"train",         folder_ / "recipe.toml", "--out",
                                          folder_ / "run", "--rank-timeout",        "60",
                                          "--set",         "train.steps=10000000"};
  const auto first = start_rank(0, port, words), second = start_rank(1, port, words);
  EXPECT_TRUE(test::wait_for([&] { return base::path_exists(step("run", 4)); }));
  second->signal(SIGKILL);
  const Finished done = first->finish();
  EXPECT_EQ(done.status, 1);
  expect_named(done.err, 1);
  EXPECT_FALSE(holds(done.err, "gloo/transport")) << done.err;
  EXPECT_TRUE(holds(done.err, "; its log: " + (folder_ / "run/rank-1.log"))) << done.err;
}

TEST_F(RankJobs, ARankThatDoesNotComeIsNamed) {
  const auto alone = start_rank(0, std::to_string(test::free_port()),
                                {"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--rank-timeout", "5"});
  const Finished done = alone->finish();
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_TRUE(holds(done.err, "could not join the 2 ranks")) << done.err;
  EXPECT_TRUE(holds(done.err, "within 5 s: rank 1 did not come")) << done.err;
}

TEST_F(RankJobs, SigtermToOneRankSavesOnAll) {
  Endless run = endless("60");
  kill(run.rank1, SIGTERM);
  const Finished done = run.process->finish();
  EXPECT_EQ(done.status, 143) << done.err;
  EXPECT_TRUE(holds(done.err, "saved in")) << done.err;
  EXPECT_EQ(run_on().status, 0);
}

/// The first signal waits for the end of a step, which never comes here.
TEST_F(RankJobs, ASecondSignalStopsAtOnce) {
  Endless run = endless("60");
  kill(run.rank1, SIGSTOP);
  run.process->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  run.process->signal(SIGTERM);
  const Finished done = run.process->finish();
  EXPECT_EQ(done.status, 143) << done.err;
  EXPECT_TRUE(holds(done.err, "stopped at once")) << done.err;
  EXPECT_FALSE(holds(done.err, "was ended by signal")) << done.err;
}

/// A run has the threads that its first processes chose.
TEST_F(RankJobs, AResumedRunDividesTheCores) {
  ASSERT_EQ(train("run", 1, {"--set", "train.steps=4"}).status, 0);
  std::string recipe = content(folder_ / "run/recipe.toml");
  const size_t at = recipe.find("threads = ");
  ASSERT_NE(at, std::string::npos);
  recipe.replace(at, recipe.find('\n', at) - at, "threads = 512");
  test::write(folder_ / "run/recipe.toml", recipe);
  const Finished done = run({"train", "--resume", folder_ / "run", "--processes", "2", "--set", "train.steps=6"});
  EXPECT_EQ(done.status, 0) << done.err;
  const int64_t mine = std::max<int64_t>(1, base::usable_cores() / 2);
  EXPECT_TRUE(holds(content(folder_ / "run/recipe.toml"), fmt::format("threads = {}\n", mine)));
}

/// torchrun --max-restarts repeats the command line of a failed job.
TEST_F(RankJobs, AJobThatIsStartedAgainGoesOn) {
  ASSERT_EQ(train("run", 1, {"--set", "train.steps=4"}).status, 0);
  const auto again = [&](const std::string& count) {
    const std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                          {"WORLD_SIZE", "1"},
                                                          {"LOCAL_RANK", "0"},
                                                          {"LOCAL_WORLD_SIZE", "1"},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"MASTER_PORT", std::to_string(test::free_port())},
                                                          {"TORCHELASTIC_RESTART_COUNT", count}};
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const Finished done = train("run", 1, {"--set", "train.steps=8"});
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    return done;
  };
  const Finished first = again("0");
  EXPECT_EQ(first.status, 2);
  EXPECT_TRUE(holds(first.err, "--resume")) << first.err;
  const Finished second = again("1");
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(base::path_exists(step("run", 8)));
}

TEST_F(RankJobs, AnotherRecipeOnARankIsRefusedByName) {
  const std::string port = std::to_string(test::free_port());
  const auto start = [&](int rank, const std::string& lr, const std::string& out) {
    return start_rank(rank, port,
                      {"train", folder_ / "recipe.toml", "--out", folder_ / out, "--rank-timeout", "60", "--set",
                       "train.optimiser.lr=" + lr});
  };
  auto first = start(0, "0.01", "run"), second = start(1, "0.02", "run");
  const Finished found = first->finish();
  EXPECT_EQ(found.status, 2) << found.err;
  EXPECT_TRUE(holds(found.err, "rank 1 (")) << found.err;
  EXPECT_TRUE(holds(found.err, "another recipe")) << found.err;
  EXPECT_EQ(second->finish().status, 2);
  // With the same one they train.
  first = start(0, "0.01", "run");
  second = start(1, "0.01", "run");
  const Finished done = first->finish();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(second->finish().status, 0);
}

/// Other bytes of the program, and other data under the same path.
TEST_F(RankJobs, AnotherProgramOrOtherDataOnARankAreRefusedByName) {
  const std::string other = folder_ / "mnemo-other";
  std::filesystem::copy_file(std::string(test::kBinary) + "-whole", other);
  std::ofstream(other, std::ios::binary | std::ios::app) << "one byte more";
  std::filesystem::create_directories(folder_ / "there");
  test::write(folder_ / "there/text.txt", content(folder_ / "text.txt") + "one line more\n");
  const auto expect_refused = [&](const std::string& program, const std::string& folder, const std::string& words) {
    const std::string port = std::to_string(test::free_port());
    const std::vector<std::string> arguments = {"train",         folder_ / "recipe.toml",  "--out",
                                                folder_ / "run", "--rank-timeout",         "60",
                                                "--data",        "/proc/self/cwd/text.txt"};
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder_ / ".");
    const auto first = start_rank(0, port, arguments);
    std::filesystem::current_path(folder);
    const auto second = start_rank(1, port, arguments, program);
    std::filesystem::current_path(before);
    const Finished found = first->finish();
    EXPECT_EQ(found.status, 2) << found.err;
    EXPECT_TRUE(holds(found.err, "rank 1 (" + base::host_name() + ") has another " + words)) << found.err;
    EXPECT_EQ(second->finish().status, 2);
  };
  expect_refused(other, folder_ / ".", "program (Mnemo)");
  expect_refused(test::kBinary, folder_ / "there", "data");
}

/// A study's trainings over the ranks of a job, one a rank: the results of one process.
TEST_F(RankJobs, AStudyOverTheRanksOfAJob) {
  write_study("steps = 4", "[[study.variant]]\nname = \"broken\"\ntrain.optimiser.lr = 1e30\n");
  const std::vector<std::string> words = {"compare", folder_ / "study.toml", "--threads", "1", "--seeds", "2", "--json",
                                          "--out"};
  const auto into = [&](const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> whole = words;
    whole.push_back(folder_ / name);
    whole.insert(whole.end(), more.begin(), more.end());
    return whole;
  };
  const Finished alone = run(into("alone"));
  const std::string port = std::to_string(test::free_port());
  auto first = start_rank(0, port, into("shared")), second = start_rank(1, port, into("shared"));
  const Finished done = first->finish(), other = second->finish();
  EXPECT_EQ(done.status, alone.status) << done.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(other.out, "") << "rank 0 writes";
  const auto values = [](const std::string& text) {
    std::vector<std::string> found;
    const base::Node node = base::parse_json(text, "results");
    for (const base::Node& variant : node.at("studies").items()[0].at("variants").items()) {
      for (const base::Node& one : variant.at("runs").items())
        found.push_back(one.at("error").as_string() + base::to_json(one.at("value"), -1));
    }
    return found;
  };
  EXPECT_EQ(values(done.out), values(alone.out));
  EXPECT_EQ(values(done.out).size(), 6u);
  // Finished trainings are not repeated; a rank with other options is refused by name.
  first = start_rank(0, port, into("shared"));
  second = start_rank(1, port, into("shared"));
  const Finished again = first->finish();
  EXPECT_TRUE(holds(again.err, "4 of 6 trainings are already done")) << again.err;
  EXPECT_EQ(values(again.out), values(alone.out));
  EXPECT_EQ(second->finish().status, 0);
  first = start_rank(0, port, into("shared"));
  second = start_rank(1, port, into("shared", {"--set", "train.steps=3"}));
  const Finished refused = first->finish();
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_TRUE(holds(refused.err, "another recipe")) << refused.err;
  EXPECT_EQ(second->finish().status, 2);
  first = start_rank(0, port, into("shared", {"--jobs", "3"}));
  second = start_rank(1, port, into("shared", {"--jobs", "3"}));
  EXPECT_TRUE(holds(first->finish().err, "--jobs: each of the 2 ranks"));
  EXPECT_EQ(second->finish().status, 2);
}

/// One rank gets a signal to stop: every training is saved before any rank ends.
TEST_F(RankJobs, AStudyThatIsStoppedSavesEveryTraining) {
  write_study("steps = 10000000\nsave_every = 0\nlog_every = 1");
  const std::vector<std::string> words = {"compare", folder_ / "study.toml", "--threads", "1", "--seeds", "1",
                                          "--out",   folder_ / "out"};
  const std::string port = std::to_string(test::free_port());
  auto first = start_rank(0, port, words), second = start_rank(1, port, words);
  const std::vector<std::string> folders = {folder_ / "out/runs/caches-none-seed0",
                                            folder_ / "out/runs/caches-short-seed0"};
  for (const std::string& folder : folders) {
    const std::string log = folder + "/log.jsonl";
    ASSERT_TRUE(test::wait_for([&] { return base::path_exists(log) && !content(log).empty(); })) << folder;
  }
  second->signal(SIGTERM);
  const Finished one = first->finish(), other = second->finish();
  EXPECT_EQ(one.status, 143) << one.err;
  EXPECT_EQ(other.status, 143) << other.err;
  for (const std::string& folder : folders) EXPECT_TRUE(weights::latest_checkpoint(folder).has_value()) << folder;
}

TEST_F(RankJobs, ErrorsOfTheCommandLine) {
  Finished done = train("run", 3);
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(holds(done.err, "train.batch_size")) << done.err;
  EXPECT_TRUE(holds(done.err, "such as 6 or 12, found 8")) << done.err;
  done = train("run", 2000);
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(holds(done.err, "--processes: expected 1 to 1024, found 2000")) << done.err;
  test::write(folder_ / "file", "no folder");
  const auto began = std::chrono::steady_clock::now();
  done = train("file", 2);
  EXPECT_EQ(done.status, 2) << done.err;
  EXPECT_TRUE(holds(done.err, "file: cannot create the folder")) << done.err;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8)) << "before the ranks start";
}

}  // namespace
}  // namespace mnemo
