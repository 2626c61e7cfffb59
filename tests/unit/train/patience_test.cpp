#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::train {
namespace {

using base::Node;

/// train.patience, on a training whose learning rate is so high that it stops to gain.
class PatienceTest : public ::testing::Test {
 protected:
  PatienceTest() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
    options_.steps = 60;
    options_.batch_size = 4;
    options_.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.3}});
    options_.log_every = 5;
    options_.eval_every = 2;
    options_.eval_batch_size = 3;
    options_.seed = 5;
  }

  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
  };
  Run make(const std::string& run_folder = {}) {
    Run run;
    run.model = test::small_model(corpus_.tokenizer->size(),
                                  {Node::table({{"type", "segment_cache"}, {"mem_len", 12}})}, 8, 0.1);
    run.task = std::make_unique<tasks::LanguageModel>(corpus_, test::task_options(options_));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options_, run_folder);
    return run;
  }
  static RunHooks quiet(std::function<int()> stop = [] { return 0; }) {
    RunHooks hooks;
    hooks.should_stop = std::move(stop);
    hooks.show_progress = false;
    return hooks;
  }
  static std::vector<double> values(const TrainReport& report) {
    std::vector<double> found;
    for (const EvaluationPoint& point : report.history.evaluations)
      found.push_back(point.evaluation.at("bits_per_character"));
    return found;
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
  TrainOptions options_;
};

/// The number of evaluations after which `patience` ends a training with these values, counted by hand.
size_t ends_after(const std::vector<double>& values, int64_t patience) {
  double best = INFINITY;
  int64_t without = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    without = values[i] < best ? 0 : without + 1;
    best = std::min(best, values[i]);
    if (without == patience) return i + 1;
  }
  return values.size();
}

TEST_F(PatienceTest, EndsAfterSoManyEvaluationsWithoutGain) {
  const std::vector<double> all = values(make().trainer->run(quiet()));
  for (const int64_t patience : {1, 2, 4}) {
    const size_t expected = ends_after(all, patience);
    ASSERT_LT(expected, all.size()) << "the training must stop to gain";
    options_.patience = patience;
    const TrainReport report = make().trainer->run(quiet());
    EXPECT_EQ(values(report), (std::vector<double>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(expected))));
    EXPECT_EQ(report.steps, 2 * static_cast<int64_t>(expected));
    EXPECT_TRUE(report.out_of_patience);
  }
  options_.eval_every = 0;
  test::expect_error<base::InputError>([&] { make(); }, {"patience", "eval_every"});
}

TEST_F(PatienceTest, StopsAtTheSameStepAfterAnyInterruption) {
  options_.patience = 2;
  options_.save_every = 100;
  const TrainReport whole = make(folder_ / "whole").trainer->run(quiet());
  ASSERT_TRUE(whole.out_of_patience);
  for (int64_t at = 1; at < whole.steps; at += 3) {
    const std::string run_folder = folder_ / ("run-" + std::to_string(at));
    int64_t done = 0;
    const TrainReport first = make(run_folder).trainer->run(quiet([&] { return ++done == at ? 15 : 0; }));
    EXPECT_EQ(first.stopped, 15);
    EXPECT_FALSE(first.out_of_patience) << "a signal ended it";
    Run second = make(run_folder);
    ASSERT_TRUE(second.trainer->resume_latest());
    const TrainReport rest = second.trainer->run(quiet());
    EXPECT_EQ(rest.steps, whole.steps);
    EXPECT_EQ(values(rest), values(whole));
    Run third = make(run_folder);
    ASSERT_TRUE(third.trainer->resume_latest());
    EXPECT_EQ(third.trainer->run(quiet()).steps, whole.steps) << "a run that is done stays done";
  }
}

TEST_F(PatienceTest, TheModelIsThatOfTheBestEvaluation) {
  options_.patience = 3;
  options_.keep_last = 1;
  for (const bool averaged : {false, true}) {
    if (averaged) options_.ema_decay = 0.5;
    const std::string run_folder = folder_ / (averaged ? "averaged" : "plain");
    Run run = make(run_folder);
    const TrainReport report = run.trainer->run(quiet());
    ASSERT_TRUE(report.out_of_patience);
    const EvaluationPoint* best = run.trainer->take_best();
    ASSERT_NE(best, nullptr);
    const std::vector<double> all = values(report);
    EXPECT_EQ(best->evaluation.at("bits_per_character"), *std::min_element(all.begin(), all.end()));
    EXPECT_LT(best->step, report.steps);
    run.trainer->take_average();
    const auto measured = run.task->evaluate(*run.model, data::Part::valid);
    EXPECT_EQ(measured->at("bits_per_character"), best->evaluation.at("bits_per_character"));
    EXPECT_NE(measured->at("bits_per_character"), all.back());
  }
}

TEST_F(PatienceTest, TheBestCheckpointMustBeThere) {
  options_.patience = 3;
  Run run = make(folder_ / "run");
  ASSERT_TRUE(run.trainer->run(quiet()).out_of_patience);
  const auto best = weights::find_checkpoint(folder_ / "run", "best");
  base::remove_tree(best->path);
  test::expect_error<base::InputError>([&] { run.trainer->take_best(); }, {folder_ / "run", "best evaluation"});
}

TEST_F(PatienceTest, SamplesAreTakenBeforeTheirStepIsSavedAndWithTheWeightsThatAreEvaluated) {
  options_.steps = 7;
  options_.save_every = 2;
  options_.ema_decay = 0.5;
  const std::string run_folder = folder_ / "run";
  Run run = make(run_folder);
  std::vector<int64_t> steps;
  std::map<int64_t, double> measured;
  RunHooks hooks = quiet();
  hooks.sample_every = 2;
  hooks.on_sample = [&](int64_t step) {
    steps.push_back(step);
    const auto latest = weights::latest_checkpoint(run_folder);
    EXPECT_LT(latest ? latest->step : 0, step);
    measured[step] = run.task->evaluate(*run.model, data::Part::valid)->at("bits_per_character");
  };
  const TrainReport report = run.trainer->run(hooks);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4, 6, 7}));
  for (const EvaluationPoint& point : report.history.evaluations)
    EXPECT_EQ(measured.at(point.step), point.evaluation.at("bits_per_character")) << point.step;
}

/// A task of which more is better: the text's, with these scores one after another and then the last one.
class Scored final : public tasks::TokenTask {
 public:
  Scored(const data::Corpus& corpus, const tasks::LanguageModelOptions& options, std::vector<double> scores)
      : text_(corpus, options), scores_(std::move(scores)) {}

  std::string metric() const override { return "score"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return text_.carries_state(); }
  int64_t batch_size() const override { return text_.batch_size(); }
  std::vector<data::Batch> next(const core::ModelInput& input) override { return text_.next(input); }
  bool has(data::Part) const override { return true; }
  std::optional<tasks::Evaluation> evaluate(const core::Model&, data::Part) const override {
    return tasks::Evaluation{{{"score", scores_[std::min(measured_++, scores_.size() - 1)]}}, 1};
  }
  weights::NamedTensors save() const override { return text_.save(); }
  void load(const std::function<at::Tensor(const std::string&)>& find) override { text_.load(find); }

 private:
  tasks::LanguageModel text_;
  std::vector<double> scores_;
  mutable size_t measured_ = 0;
};

class HigherIsBetter : public PatienceTest {
 protected:
  HigherIsBetter() {
    options_.steps = 8;
    options_.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.01}});
    options_.log_every = options_.eval_every = options_.save_every = 1;
    options_.keep_last = 0;
  }
  struct Ended {
    TrainReport report;
    int64_t best = 0;  ///< the step of the evaluation that take_best() returns
  };
  /// A training whose evaluations score 0.2, 0.7, 0.5 and 0.4 for good.
  Ended train(const std::string& run_folder) {
    const auto model = test::small_model(corpus_.tokenizer->size(), {});
    Scored task(corpus_, test::task_options(options_), {0.2, 0.7, 0.5, 0.4});
    Trainer trainer(*model, task, options_, run_folder);
    TrainReport report = trainer.run(quiet());
    const EvaluationPoint* best = trainer.take_best();
    return {std::move(report), best == nullptr ? 0 : best->step};
  }
  /// The step of the checkpoint that is marked as the best one.
  static int64_t marked(const std::string& run_folder) {
    const auto found = weights::find_checkpoint(run_folder, "best");
    return found && found->best ? found->step : 0;
  }
};

// Patience that is added on the way would otherwise end without weights.
TEST_F(HigherIsBetter, PatienceIsRefusedWhereTheBestWeightsWereNotKept) {
  options_.save_every = 0;
  const auto model = test::small_model(corpus_.tokenizer->size(), {});
  Scored task(corpus_, test::task_options(options_), {0.2, 0.7, 0.5, 0.4});
  Trainer first(*model, task, options_, folder_ / "run");
  first.run(quiet([&] { return first.steps_done() == 4 ? SIGTERM : 0; }));
  const auto resumed = [&] {
    const auto fresh = test::small_model(corpus_.tokenizer->size(), {});
    return Trainer(*fresh, task, options_, folder_ / "run").resume_latest();
  };
  options_.patience = 3;
  test::expect_error<base::InputError>(resumed,
                                       {"train.patience ends with the weights of the best evaluation, at step 2"});
  options_.patience.reset();
  EXPECT_TRUE(resumed());
}

TEST_F(HigherIsBetter, BestStopPatienceAndPlateauFollowIt) {
  EXPECT_EQ(train(folder_ / "whole").report.steps, 8);
  EXPECT_EQ(marked(folder_ / "whole"), 2);

  TrainOptions plain = options_;
  options_.stop_at = 0.6;
  EXPECT_EQ(train(folder_ / "stopped").report.steps, 2);
  EXPECT_EQ(marked(folder_ / "stopped"), 2);

  options_ = plain;
  options_.patience = 2;
  const Ended patient = train(folder_ / "patient");
  EXPECT_EQ(patient.report.steps, 4);
  EXPECT_TRUE(patient.report.out_of_patience);
  EXPECT_EQ(patient.best, 2);

  options_ = plain;
  options_.steps = 5;
  options_.schedule = Node::table({{"type", "plateau"}, {"patience", 0}, {"decay", 0.5}});
  std::vector<double> rates;
  for (const LossPoint& point : train(folder_ / "plateau").report.history.losses) rates.push_back(point.lr);
  // The evaluations of steps 3 and 4 are worse than that of step 2, and each halves the rate of the step after it.
  EXPECT_EQ(rates, (std::vector<double>{0.01, 0.01, 0.01, 0.005, 0.0025}));
}

}  // namespace
}  // namespace mnemo::train
