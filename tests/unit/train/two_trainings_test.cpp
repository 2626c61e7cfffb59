// Two trainings in one process, at the same time.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "base/log.h"
#include "tests/unit/train/trainer_run.h"

namespace mnemo::train {
namespace {

class TwoTrainings : public TrainerTest {
 protected:
  /// Where a training goes, what it says, and when it is asked to stop.
  struct Watched {
    std::string folder;
    int64_t seed = 0, stop_after = 0;
    std::string log = {};
    std::vector<int64_t> steps = {};
    TrainReport report = {};
  };

  /// Trains with random masks, so that shared random numbers would show. `begin` is called after the model is made and
  /// in each step.
  void train(Watched& watched, const std::function<void()>& begin) {
    const auto console = std::make_shared<base::Console>([&](std::string_view line) { watched.log += line; });
    console->on_progress = [&](const base::ProgressPoint& point) { watched.steps.push_back(point.done); };
    const base::ConsoleScope scope(console);
    TrainOptions options = small_options();
    options.steps = 12;
    options.seed = watched.seed;
    options.threads = 1;
    Run run = make(options, memories().at("rmt, depth 1, and cache"), watched.folder, 0.2);
    RunHooks hooks;
    hooks.should_stop = [&] {
      begin();
      return run.trainer->steps_done() == watched.stop_after ? 7 : 0;
    };
    base::log_info("training {}", watched.seed);
    watched.report = run.trainer->run(hooks);
  }
};

TEST_F(TwoTrainings, DoNotSeeEachOther) {
  std::vector<Watched> alone = {{folder_ / "a", 1, 8}, {folder_ / "b", 2, 10}},
                       together = {{folder_ / "c", 1, 8}, {folder_ / "d", 2, 10}};
  for (Watched& one : alone) train(one, [] {});
  std::barrier step(2);
  std::vector<std::thread> threads;
  for (Watched& one : together) {
    threads.emplace_back([&] {
      // Step by step in turns, as long as both train.
      train(one, [&] { step.arrive_and_wait(); });
      step.arrive_and_drop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i].report.stopped, 7);
    EXPECT_EQ(together[i].report.steps, alone[i].stop_after);
    EXPECT_EQ(together[i].log, fmt::format("training {}\n", i + 1));
    EXPECT_EQ(together[i].log, alone[i].log);
    EXPECT_EQ(together[i].steps, alone[i].steps);
    EXPECT_EQ(together[i].steps.size(), static_cast<size_t>(alone[i].stop_after));
    expect_same(alone[i].report.checkpoint, together[i].report.checkpoint);
  }
}

}  // namespace
}  // namespace mnemo::train
