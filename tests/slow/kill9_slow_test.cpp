#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <random>
#include <thread>

#include "base/file_io.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"

namespace mnemo {
namespace {

using base::Node;

constexpr int kKills = 50;

train::TrainOptions options_of_the_run() {
  train::TrainOptions options;
  options.steps = 400;
  options.batch_size = 4;
  options.segments_per_step = 2;
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.003}});
  options.schedule = "cosine";
  options.log_every = 3;
  options.eval_every = 50;
  options.save_every = 1;
  options.keep_last = 2;
  return options;
}

/// Starts a process that trains in `folder` to the end, resuming from the newest checkpoint if there is one.
pid_t start(const std::string& text, const std::string& folder) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    const train::TrainOptions options = options_of_the_run();
    const data::Corpus corpus = test::small_corpus(text);
    const auto model = test::small_model(
        corpus.tokenizer->size(),
        {Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 1}}),
         Node::table({{"type", "segment_cache"}, {"mem_len", 6}}), Node::table({{"type", "grc"}, {"cache_len", 4}})},
        8, 0.1);
    tasks::LanguageModel task(corpus, test::task_options(options));
    train::Trainer trainer(*model, task, options, folder);
    trainer.resume_latest();
    train::RunHooks hooks;
    hooks.show_progress = false;
    const bool done = trainer.run(hooks).steps == options.steps;
    ::_exit(done ? 0 : 1);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    ::_exit(2);
  }
}

/// Waits for the child; returns its exit status, or minus the signal that ended it.
int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Kill9Slow, CheckpointsStayGoodAndTheResumedRunIsBitwiseTheUninterruptedOne) {
  const test::TemporaryFolder folder;
  const std::string text = folder / "text.txt", whole = folder / "whole", killed = folder / "killed";
  base::write_file_atomic(text, test::counting_text(120));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(wait_for(start(text, whole)), 0);
  const double step = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 400;

  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> steps(0.5, 12.0);
  int64_t last = 0;
  int moved = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const pid_t child = start(text, killed);
    std::this_thread::sleep_for(std::chrono::duration<double>(steps(random) * step));
    ::kill(child, SIGKILL);
    ASSERT_EQ(wait_for(child), -SIGKILL) << "ended before kill " << kill << ": give the run more steps";
    std::string warnings;
    const auto newest = weights::latest_checkpoint(killed, [&](const std::string& warning) { warnings += warning; });
    EXPECT_EQ(warnings, "") << "kill " << kill;
    const int64_t now = newest ? newest->step : 0;
    EXPECT_GE(now, last) << "kill " << kill;
    moved += now > last ? 1 : 0;
    last = now;
  }
  EXPECT_GT(moved, kKills / 4) << "the kills came too early to hit anything";
  ASSERT_EQ(wait_for(start(text, killed)), 0);

  const auto expected = weights::latest_checkpoint(whole), found = weights::latest_checkpoint(killed);
  ASSERT_TRUE(expected && found);
  EXPECT_EQ(found->step, 400);
  const weights::CheckpointReader one(expected->path), two(found->path);
  for (const weights::CheckpointFile& file : one.info().files) {
    if (file.name != "timing.safetensors") {
      EXPECT_EQ(one.file(file.name), two.file(file.name)) << file.name;
    }
  }
}

}  // namespace
}  // namespace mnemo
