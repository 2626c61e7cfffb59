// Runs that were stopped, killed or changed, and resumed from their checkpoints.
#include <signal.h>
#include <torch/types.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/unit/train/trainer_run.h"
#include "weights/safetensors.h"

namespace mnemo::train {
namespace {

using base::Node;

TEST_F(TrainerTest, AMemoryThatTheModelLacksIsAnotherModel) {
  const std::string run_folder = folder_ / "run";
  const TrainOptions options = small_options();
  const TrainReport report = make(options, memories().at("segment cache"), run_folder).trainer->run(quiet());
  const Run other = make(options, {}, run_folder);
  test::expect_error<base::InputError>([&] { other.trainer->resume(report.checkpoint); },
                                       {report.checkpoint + "/state.safetensors", "it is from a different model"});
}

TEST_F(TrainerTest, AGeneratorThatIsNoneAndAnotherStepAreDamage) {
  const std::string run_folder = folder_ / "run";
  const TrainReport report = make(small_options(), {}, run_folder).trainer->run(quiet());
  const auto refused = [&](const std::string& name, const at::Tensor& tensor, const std::string& what,
                           const std::string& of = "trainer") {
    const std::string file = report.checkpoint + "/" + of + ".safetensors", before = base::read_file(file);
    const std::string manifest = report.checkpoint + "/manifest.json", listed = base::read_file(manifest);
    weights::TensorFile content = weights::read_safetensors(file);
    for (auto& [known, value] : content.tensors) {
      if (known == name) value = tensor;
    }
    weights::write_safetensors(file, {content.tensors.begin(), content.tensors.end()}, content.metadata);
    std::string sums = listed;
    const std::string old = base::sha256(before);
    base::write_file_atomic(manifest, sums.replace(sums.find(old), old.size(), base::sha256_file(file)));
    const Run other = make(small_options(), {}, run_folder);
    test::expect_error<base::InputError>([&] { other.trainer->resume(report.checkpoint); }, {file, what});
    base::write_file_atomic(file, before);
    base::write_file_atomic(manifest, listed);
  };
  const weights::TensorFile content = weights::read_safetensors(report.checkpoint + "/trainer.safetensors");
  refused("generator.cpu", at::full_like(content.at("generator.cpu", ""), 255), "expected the state of a generator");
  at::Tensor counters = content.at("counters", "").clone();
  counters[0] = 5;
  refused("counters", counters, "expected the state of step 6, as the manifest says, found step 5");
  for (const int64_t sum : {0, 1, 2}) {
    at::Tensor sums = content.at("sums", "").clone();
    sums[sum] = sum == 1 ? INFINITY : NAN;
    refused("sums", sums, "\"sums\": expected finite numbers, found ");
  }
  for (const auto& [name, moment] : weights::read_safetensors(report.checkpoint + "/optimiser.safetensors").tensors) {
    if (!name.starts_with("schedule.") && moment.is_floating_point())
      refused(name, at::full_like(moment, NAN), "'" + name + "' expected finite numbers, found nan or inf",
              "optimiser");
  }
}

TEST_F(TrainerTest, ResumedRunIsBitwiseTheUninterruptedOne) {
  int number = 0;
  for (const auto& [name, memory] : memories()) {
    SCOPED_TRACE(name);
    const std::string whole = folder_ / fmt::format("whole{}", number), cut = folder_ / fmt::format("cut{}", number);
    ++number;
    const TrainOptions options = small_options();
    const TrainReport expected = make(options, memory, whole, 0.1).trainer->run(quiet());
    EXPECT_EQ(expected.steps, 6);
    Run first = make(options, memory, cut, 0.1);
    const TrainReport stopped = first.trainer->run(
        quiet([&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; }));
    EXPECT_EQ(stopped.stopped, SIGTERM);
    EXPECT_EQ(stopped.steps, 3);
    Run second = make(options, memory, cut, 0.1);
    ASSERT_TRUE(second.trainer->resume_latest());
    const TrainReport resumed = second.trainer->run(quiet());
    EXPECT_EQ(resumed.steps, 6);
    expect_same(expected.checkpoint, resumed.checkpoint);
    ASSERT_EQ(resumed.history.losses.size(), expected.history.losses.size());
    EXPECT_EQ(resumed.history.losses.front().loss, expected.history.losses.front().loss);
    EXPECT_EQ(resumed.history.evaluations.back().evaluation.metrics,
              expected.history.evaluations.back().evaluation.metrics);
  }
}

// Results of evaluations are kept: the best metric so far, and how far a plateau has reduced the learning rate.
TEST_F(TrainerTest, ResumedRunKnowsTheBestAndThePlateau) {
  TrainOptions options = small_options();
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 1e-30}});  // no improvement after the first evaluation
  options.schedule = Node::table({{"type", "plateau"}, {"patience", 0}});
  options.eval_every = options.save_every = options.log_every = 1;
  const std::string whole = folder_ / "whole", cut = folder_ / "cut";
  const TrainReport expected = make(options, {}, whole).trainer->run(quiet());
  Run first = make(options, {}, cut);
  first.trainer->run(quiet([&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; }));
  Run second = make(options, {}, cut);
  ASSERT_TRUE(second.trainer->resume_latest());
  const TrainReport resumed = second.trainer->run(quiet());
  EXPECT_LT(expected.history.losses.back().lr, 0.5 * expected.history.losses.front().lr);
  expect_same(expected.checkpoint, resumed.checkpoint);
  for (const std::string& run_folder : {whole, cut})
    EXPECT_EQ(weights::find_checkpoint(run_folder, "best")->step, 1) << run_folder;
}

TEST_F(TrainerTest, AnotherScheduleBeginsAfresh) {
  TrainOptions options = small_options();
  options.steps = 4;
  options.eval_every = 2;
  const Node kinds[] = {Node::table({{"type", "constant"}}), Node::table({{"type", "plateau"}})};
  for (const size_t first : {0, 1}) {
    const std::string folder = folder_ / std::to_string(first);
    options.steps = 4;
    options.schedule = kinds[first];
    make(options, {}, folder).trainer->run(quiet());
    options.steps = 6;
    options.schedule = kinds[1 - first];
    Run after = make(options, {}, folder);
    ASSERT_TRUE(after.trainer->resume_latest());
    EXPECT_EQ(after.trainer->run(quiet()).steps, 6);
  }
}

TEST_F(TrainerTest, AskedToStopItFinishesTheStepAndSaves) {
  const std::string run_folder = folder_ / "run";
  Run run = make(small_options(), {}, run_folder);
  int reason = 0;
  std::pair<int64_t, int64_t> told;
  RunHooks hooks = quiet([&] { return reason; });
  hooks.on_step = [&](int64_t done, int64_t saved) { told = {done, saved}; };
  hooks.on_evaluation = [&](const EvaluationPoint& point) {
    if (point.step == 4) reason = SIGINT;
  };
  const TrainReport report = run.trainer->run(hooks);
  EXPECT_EQ(report.stopped, SIGINT);
  EXPECT_EQ(report.steps, 4);
  EXPECT_EQ(told, std::pair(int64_t{4}, int64_t{4}));
  EXPECT_EQ(weights::verify_checkpoint(report.checkpoint).step, 4);
}

TEST_F(TrainerTest, LogHoldsEveryPointOnceAfterAKill) {
  TrainOptions options = small_options();
  options.log_every = 1;
  options.save_every = 2;
  options.eval_every = 3;
  const std::string run_folder = folder_ / "run";
  Run killed = make(options, {}, run_folder);
  struct Kill {};
  RunHooks hooks = quiet();
  hooks.on_loss = [](const LossPoint& point) {
    if (point.step == 4) throw Kill{};  // logged, but not saved: the last checkpoint is that of step 3, a new best
  };
  EXPECT_THROW(killed.trainer->run(hooks), Kill);
  base::remove_tree(weights::latest_checkpoint(run_folder)->path);  // a killed process does not save that step
  base::write_file_atomic(run_folder + "/log.jsonl", base::read_file(run_folder + "/log.jsonl") + "{\"step\": 1, \"to");
  Run run = make(options, {}, run_folder);
  test::expect_error<base::InputError>([&] { run.trainer->run(quiet()); }, {run_folder, "step 3"});
  ASSERT_TRUE(run.trainer->resume_latest());
  run.trainer->run(quiet());
  std::vector<int64_t> losses, evaluations;
  const std::string log = base::read_file(run_folder + "/log.jsonl");
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = log.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const Node line = base::parse_json(log.substr(begin, end - begin), "log");
    (line.contains("loss") ? losses : evaluations).push_back(line.at("step").as_int());
    begin = end + 1;
  }
  EXPECT_EQ(losses, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(evaluations, (std::vector<int64_t>{3, 6}));
}

TEST_F(TrainerTest, ResumeRefusesAnotherRunsCheckpoint) {
  TrainOptions options = small_options();
  const TrainReport report = make(options, {}, folder_ / "run").trainer->run(quiet());
  Run other = make(options, memories().at("rmt, depth 1, and cache"));
  test::expect_error<base::InputError>([&] { other.trainer->resume(report.checkpoint); },
                                       {"model.safetensors", "memory.tokens"});
  options.accumulate = 2;
  Run parts = make(options, {});
  test::expect_error<base::InputError>([&] { parts.trainer->resume(report.checkpoint); }, {"accumulate"});
  options.optimiser = "sgd";
  options.accumulate = 1;
  Run sgd = make(options, {});
  test::expect_error<base::InputError>([&] { sgd.trainer->resume(report.checkpoint); },
                                       {"train.json", "has the optimizer \"adamw\"; expected the same, found \"sgd\""});
}

TEST_F(TrainerTest, APlateauNeedsEvaluations) {
  TrainOptions options = small_options();
  options.schedule = Node::table({{"type", "plateau"}});
  options.eval_every = 0;
  test::expect_error<base::InputError>([&] { make(options, {}); }, {"train.schedule", "train.eval_every above 0"});
}

}  // namespace
}  // namespace mnemo::train
