#include <signal.h>
#include <torch/types.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/log.h"
#include "tests/support/expect_error.h"
#include "tests/unit/train/trainer_run.h"

namespace mnemo::train {
namespace {

using base::Node;

TEST_F(TrainerTest, AResumedReplayIsBitwiseTheUninterruptedOne) {
  TrainOptions options = small_options();
  options.segments_per_step = 1;
  for (const int64_t replay : {2, 5}) {  // full and not full at the checkpoint
    SCOPED_TRACE(replay);
    options.replay = replay;
    const std::string whole = folder_ / fmt::format("whole{}", replay), cut = folder_ / fmt::format("cut{}", replay);
    const auto& memory = memories().at("rmt, depth 1, and cache");
    const TrainReport expected = make(options, memory, whole, 0.1).trainer->run(quiet());
    Run first = make(options, memory, cut, 0.1);
    first.trainer->run(quiet([&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; }));
    Run second = make(options, memory, cut, 0.1);
    ASSERT_TRUE(second.trainer->resume_latest());
    expect_same(expected.checkpoint, second.trainer->run(quiet()).checkpoint);
    options.replay = 0;
    const Run other = make(options, memory, cut, 0.1);
    test::expect_error<base::InputError>([&] { other.trainer->resume_latest(); }, {"data position", "train.replay"});
  }
}

/// By definition: each step runs the last three segments as one graph and takes the losses of the newest, the
/// auxiliary one too.
TEST_F(TrainerTest, AReplayReachesBackFromEachNewSegment) {
  TrainOptions options = small_options();
  options.segments_per_step = 1;
  options.clip_norm.reset();
  options.schedule = Node::table({{"type", "constant"}});
  options.optimiser = Node::table({{"type", "sgd"}, {"lr", 0.1}});
  Node rmt = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 2}});
  rmt.set("aux_loss", Node::table({{"weight", 0.5}, {"token", 0}}));
  const std::vector<Node> memory = {rmt, Node::table({{"type", "segment_cache"}, {"mem_len", 5}})};
  tasks::LanguageModel text(corpus_, test::task_options(options));
  const auto twin = test::small_model(corpus_.tokenizer->size(), memory, 8, 0.0, at::kDouble);
  options.replay = 2;
  Run run = make(options, memory, {}, 0.0, at::kDouble);
  std::vector<data::Batch> window;
  core::State start;
  for (int64_t step = 0; step < 6; ++step) {
    window.push_back(text.next(core::TokenInput{.segment_size = 8}).front());
    if (window.size() > 3) window.erase(window.begin());
    core::State state = start.empty() ? twin->initial_state(4) : start;
    at::Tensor loss, total;
    for (size_t i = 0; i < window.size(); ++i) {
      core::StepResult result = twin->forward(core::in_training(window[i].input), state);
      state = result.state;
      if (i == 0 && window.size() == 3) start = core::detach(state);
      total = loss = twin->nll(result.hidden, data::token_targets(window[i])).mean();
      for (const core::AuxiliaryLoss& auxiliary : twin->auxiliary_losses(result))
        total = total + auxiliary.weight * auxiliary.values.mean();
    }
    twin->parameters().zero_grad();
    total.backward();
    const StepOutcome found = run.trainer->step();
    EXPECT_EQ(found.targets, 4 * 8);
    EXPECT_NEAR(found.loss, loss.item<double>(), 1e-12) << "step " << step;
    EXPECT_NEAR(found.total, total.item<double>(), 1e-12) << "step " << step;
    EXPECT_GT(found.total, found.loss) << "there is no auxiliary loss, so the test shows less";
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : twin->parameters().named()) {
      if (tensor.grad().defined()) at::Tensor(tensor).sub_(tensor.grad(), 0.1);
      EXPECT_TRUE(at::allclose(run.model->parameters().find(name), tensor, 1e-12, 1e-12)) << name << ", step " << step;
    }
  }
}

TEST_F(TrainerTest, AReplayNeedsMemoryThatGoesOn) {
  TrainOptions options = small_options();
  options.replay = 1;
  test::expect_error<base::InputError>([&] { make(options, memories().at("grc")); },
                                       {"train.replay", "per-model memory"});
  tasks::LanguageModelOptions text = test::task_options(options);
  text.reset_segments = true;
  test::expect_error<base::InputError>([&] { tasks::LanguageModel(corpus_, text); }, {"replay of 1", "expected 0"});
}

TEST_F(TrainerTest, GaugesOfTheModelStandBesideTheLoss) {
  TrainOptions options = small_options();
  options.log_every = 1;
  const std::string folder = folder_ / "gauges";
  Run first = make(options, {Node::table({{"type", "grc"}, {"cache_len", 4}})}, folder);
  first.trainer->run(quiet([&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; }));
  Run second = make(options, {Node::table({{"type", "grc"}, {"cache_len", 4}})}, folder);
  ASSERT_TRUE(second.trainer->resume_latest());
  const History history = second.trainer->run(quiet()).history;
  ASSERT_EQ(history.losses.size(), 6u);
  const std::vector<core::Scalar> last = second.model->scalars();
  ASSERT_FALSE(last.empty());
  EXPECT_EQ(last[0].name, "layers.0.sigma_lambda");
  for (size_t g = 0; g < last.size(); ++g) {
    for (size_t i = 0; i < history.losses.size(); ++i) {
      ASSERT_EQ(history.losses[i].scalars.size(), last.size()) << "step " << i + 1;
      EXPECT_EQ(history.losses[i].scalars[g].name, last[g].name);
      ASSERT_EQ(history.losses[i].scalars[g].values.size(), last[g].values.size());
    }
    EXPECT_EQ(history.losses[5].scalars[g].values, last[g].values);
    EXPECT_NE(history.losses[0].scalars[g].values, last[g].values) << "lambda learns";
    EXPECT_EQ(history.losses[2].scalars[g].values, first.model->scalars()[g].values) << "what the checkpoint kept";
  }
  const std::string log = base::read_file(base::join_path(folder, "log.jsonl"));
  EXPECT_NE(log.find("\"gauges\":{\"layers.0.sigma_lambda\":["), std::string::npos) << log;
  EXPECT_TRUE(make(options, {}).trainer->run(quiet()).history.losses.front().scalars.empty());
}

TEST_F(TrainerTest, GradientsAreClippedBeforeTheStep) {
  TrainOptions options = small_options();
  options.optimiser = Node::table({{"type", "sgd"}, {"lr", 1.0}});
  options.schedule = "constant";
  options.clip_norm = 0.01;
  Run run = make(options, {}, {}, 0.0, at::kDouble);
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : run.model->parameters().named()) before.push_back(tensor.detach().clone());
  EXPECT_GT(run.trainer->step().gradient_norm, 0.1);
  double moved = 0;
  size_t i = 0;
  for (const auto& [name, tensor] : run.model->parameters().named())
    moved += (tensor.detach() - before[i++]).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(moved), 0.01, 1e-6);
}

TEST_F(TrainerTest, AccumulatedGradientIsTheLargeBatchs) {
  for (const auto& [name, memory] : memories()) {
    for (const int64_t parts : {2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} parts", name, parts));
      TrainOptions options = small_options();
      if (name == "grc") options.segments_per_step = 1;
      Run whole = make(options, memory, {}, 0.0, at::kDouble);
      options.accumulate = parts;
      Run cut = make(options, memory, {}, 0.0, at::kDouble);
      for (int64_t step = 0; step < 4; ++step) {
        const StepOutcome expected = whole.trainer->step(), found = cut.trainer->step();
        EXPECT_NEAR(found.loss, expected.loss, 1e-12);
        EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-10);
      }
      for (const auto& [parameter, tensor] : whole.model->parameters().named()) {
        EXPECT_TRUE(at::allclose(cut.model->parameters().find(parameter), tensor, 1e-9, 1e-9)) << parameter;
      }
      const auto expected = whole.model->initial_state(1).fields(), found = cut.model->initial_state(1).fields();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i].second, expected[i].second, 1e-9, 1e-9)) << expected[i].first.path;
      }
    }
  }
  TrainOptions options = small_options();
  options.accumulate = 2;
  test::expect_error<base::InputError>([&] { make(options, memories().at("grc")); },
                                       {"'train.accumulate', 'train.segments_per_step'", "found 2 and 3"});
}

// Documents end at different places, so the parts of a batch have different numbers of real targets, some of them none.
TEST_F(TrainerTest, AccumulatedGradientIsTheLargeBatchsWithPaddedRowsToo) {
  use_documents(
      "one\n\nthree four five six seven eight nine ten\n\nab\n\nfive six seven\n\na\n\neleven and twelve are more than "
      "ten\n\n");
  Node rmt = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}});
  rmt.set("aux_loss", Node::table({{"weight", 0.5}, {"token", 0}}));
  auto all = memories();
  all["rmt with an auxiliary loss"] = {rmt};
  for (const auto& [name, memory] : all) {
    for (const int64_t parts : {2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} parts", name, parts));
      TrainOptions options = small_options();
      options.clip_norm.reset();
      if (name == "grc") options.segments_per_step = 1;
      tasks::LanguageModel twin(corpus_, test::task_options(options));
      Run whole = make(options, memory, {}, 0.0, at::kDouble);
      options.accumulate = parts;
      Run cut = make(options, memory, {}, 0.0, at::kDouble);
      std::set<int64_t> targets;  // of a part
      for (int64_t step = 0; step < 6; ++step) {
        std::vector<int64_t> of_part(static_cast<size_t>(parts), 0);
        for (const data::Batch& segment : twin.next(core::TokenInput{.segment_size = 8})) {
          for (int64_t part = 0; part < parts; ++part) {
            const at::Tensor own = data::token_targets(segment).narrow(0, part * 4 / parts, 4 / parts);
            of_part[static_cast<size_t>(part)] += (own != base::kIgnoreTarget).sum().item<int64_t>();
          }
        }
        targets.insert(of_part.begin(), of_part.end());
        const StepOutcome expected = whole.trainer->step(), found = cut.trainer->step();
        EXPECT_EQ(found.targets, expected.targets);
        EXPECT_NEAR(found.loss, expected.loss, 1e-12);
        EXPECT_NEAR(found.total, expected.total, 1e-12);
        EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-10);
      }
      EXPECT_GE(targets.size(), 3U) << "the parts have the same targets, so the test shows nothing";
      for (const auto& [parameter, tensor] : whole.model->parameters().named()) {
        EXPECT_TRUE(at::allclose(cut.model->parameters().find(parameter), tensor, 1e-9, 1e-9)) << parameter;
      }
      const auto expected = whole.model->initial_state(1).fields(), found = cut.model->initial_state(1).fields();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i].second, expected[i].second, 1e-9, 1e-9)) << expected[i].first.path;
      }
    }
  }
}

TEST_F(TrainerTest, RecomputingIsBitwiseStoring) {
  use_documents(
      "one\n\nthree four five six seven eight nine ten\n\nab\n\nfive six seven\n\na\n\neleven and twelve are more than "
      "ten\n\n");
  Node rmt = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}});
  rmt.set("aux_loss", Node::table({{"weight", 0.5}, {"token", 0}}));
  auto all = memories();
  all["rmt with an auxiliary loss"] = {rmt};
  int64_t number = 0;
  for (const auto& [name, memory] : all) {
    for (const int64_t parts : {1, 2}) {
      if (name == "grc" && parts > 1) continue;
      SCOPED_TRACE(fmt::format("{}, {} parts", name, parts));
      TrainOptions options = small_options();
      options.accumulate = parts;
      const std::string stored = folder_ / fmt::format("stored{}", number),
                        again = folder_ / fmt::format("again{}", number);
      ++number;
      const TrainReport expected = make(options, memory, stored, 0.1).trainer->run(quiet());
      options.recompute = TrainOptions::Recompute::segment;
      const TrainReport found = make(options, memory, again, 0.1).trainer->run(quiet());
      expect_same(expected.checkpoint, found.checkpoint, "train.json");  // the options
    }
  }
}

TEST_F(TrainerTest, ATaskHasTheBatchesOfTheOptions) {
  TrainOptions options = small_options();
  const auto model = test::small_model(corpus_.tokenizer->size(), {});
  tasks::LanguageModel task(corpus_, test::task_options(options));
  options.batch_size = 6;
  test::expect_error<base::InputError>([&] { Trainer(*model, task, options); }, {"batches of 4", "batches of 6"});
}

TEST_F(TrainerTest, RecomputeAndItsLimitGoTogether) {
  TrainOptions options = small_options();
  options.recompute = TrainOptions::Recompute::automatic;
  test::expect_error<base::InputError>([&] { make(options, {}); }, {"memory_limit", "auto", "found none"});
  options.memory_limit = 100;
  make(options, {});
  options.recompute = TrainOptions::Recompute::segment;
  test::expect_error<base::InputError>([&] { make(options, {}); },
                                       {"memory_limit", "auto", "found recompute = \"segment\""});
}

TEST_F(TrainerTest, TheModelsCacheIsWhatTheStepMadeOfIt) {
  TrainOptions options = small_options();
  options.segments_per_step = 1;
  Run run = make(options, memories().at("grc"), {}, 0.0, at::kDouble);
  tasks::LanguageModel twin(corpus_, test::task_options(options));
  for (int64_t step = 0; step < 3; ++step) {
    const at::NoGradGuard no_grad;
    const core::State before = run.model->initial_state(4);
    const data::Batch batch = twin.next(core::TokenInput{.segment_size = 8}).front();
    const auto expected = run.model->forward(core::in_training(batch.input), before).state.fields();
    run.trainer->step();
    const auto found = run.model->initial_state(4).fields();
    ASSERT_EQ(found.size(), 1U);
    ASSERT_EQ(expected.size(), 1U);
    EXPECT_LE((found[0].second - expected[0].second).abs().max().item<double>(), 1e-12);
    EXPECT_GT((found[0].second - before.fields()[0].second).abs().max().item<double>(), 1e-6);
  }
}

TEST_F(TrainerTest, LossWithPaddingIsTheMeanOverRealTargets) {
  use_documents("one\n\nthree four five six seven eight\n\ntwo three\n\nfive six seven\n\n");
  TrainOptions options = small_options();
  options.batch_size = 3;
  Run run = make(options, {}, {}, 0.0, at::kDouble);
  tasks::LanguageModel twin(corpus_, test::task_options(options));
  double sum = 0;
  int64_t count = 0;
  for (const data::Batch& segment : twin.next(core::TokenInput{.segment_size = 8})) {
    const at::NoGradGuard no_grad;
    const auto step = run.model->forward(core::in_training(segment.input), run.model->initial_state(3));
    sum += run.model->nll(step.hidden, data::token_targets(segment)).sum().item<double>();
    count += (data::token_targets(segment) != -100).sum().item<int64_t>();
  }
  const StepOutcome outcome = run.trainer->step();
  EXPECT_EQ(outcome.targets, count);
  EXPECT_LT(count, 3 * 3 * 8);  // there was padding
  EXPECT_NEAR(outcome.loss, sum / static_cast<double>(count), 1e-12);
}

TEST_F(TrainerTest, AuxiliaryLossIsWeightedAndKeptApart) {
  Node rmt = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}});
  rmt.set("aux_loss", Node::table({{"weight", 0.5}, {"token", 0}}));
  TrainOptions options = small_options();
  options.accumulate = 2;
  Run run = make(options, {rmt}, {}, 0.0, at::kDouble);
  double auxiliary = 0;
  tasks::LanguageModel twin(corpus_, test::task_options(options));
  core::State state = run.model->initial_state(4);
  for (const data::Batch& segment : twin.next(core::TokenInput{.segment_size = 8})) {
    const auto step = run.model->forward(core::in_training(segment.input), state);
    auxiliary += run.model->auxiliary_losses(step).at(0).values.mean().item<double>() / 3;
    state = step.state;
  }
  const StepOutcome outcome = run.trainer->step();
  EXPECT_NEAR(outcome.total - outcome.loss, 0.5 * auxiliary, 1e-12);
}

TEST_F(TrainerTest, NonFiniteLossStopsBeforeTheWeightsChange) {
  TrainOptions options = small_options();
  options.save_every = 2;
  options.log_every = 1;
  const std::string run_folder = folder_ / "run";
  Run run = make(options, {}, run_folder);
  std::map<std::string, at::Tensor> before;
  RunHooks hooks = quiet();
  hooks.on_loss = [&](const LossPoint& point) {
    if (point.step != 3) return;
    const at::NoGradGuard no_grad;
    run.model->parameters().find("backbone.layers.0.ffn.0.bias").fill_(NAN);
    for (const auto& [name, tensor] : run.model->parameters().named()) before[name] = tensor.clone();
  };
  test::expect_error<base::NotFinite>([&] { run.trainer->run(hooks); },
                                      {"step 4", "nan", "learning rate 0.0085", run_folder + "/step-00000002"});
  for (const auto& [name, tensor] : run.model->parameters().named()) {
    EXPECT_TRUE(at::equal(at::nan_to_num(tensor), at::nan_to_num(before.at(name)))) << name;
  }
}

TEST_F(TrainerTest, LossFallsAndTheBestIsKept) {
  TrainOptions options = small_options();
  options.steps = 60;
  options.schedule = "constant";
  options.eval_every = 20;
  options.save_every = 50;
  const std::string run_folder = folder_ / "run";
  const TrainReport report = make(options, memories().at("segment cache"), run_folder).trainer->run(quiet());
  EXPECT_LT(report.history.losses.back().loss, 0.7 * report.history.losses.front().loss);
  ASSERT_EQ(report.history.evaluations.size(), 3U);
  double best = INFINITY;
  for (const EvaluationPoint& point : report.history.evaluations)
    best = std::min(best, point.evaluation.at("bits_per_character"));
  const auto saved = weights::find_checkpoint(run_folder, "best");
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->metrics.at("valid.bits_per_character"), best);
}

TEST_F(TrainerTest, StopsWhereTheMetricIsGoodEnough) {
  TrainOptions options = small_options();
  options.steps = 60;
  options.schedule = "constant";
  options.eval_every = 5;
  const auto values = [](const TrainReport& report) {
    std::vector<double> found;
    for (const EvaluationPoint& point : report.history.evaluations)
      found.push_back(point.evaluation.at("bits_per_character"));
    return found;
  };
  const std::vector<double> all = values(make(options, memories().at("segment cache")).trainer->run(quiet()));
  ASSERT_EQ(all.size(), 12U);
  ASSERT_LT(all[3], std::min({all[0], all[1], all[2]}));
  options.stop_at = (all[3] + std::min({all[0], all[1], all[2]})) / 2;
  const std::string run_folder = folder_ / "run";
  const TrainReport report = make(options, memories().at("segment cache"), run_folder).trainer->run(quiet());
  EXPECT_EQ(report.steps, 20);
  EXPECT_EQ(report.stopped, 0);
  EXPECT_EQ(values(report), (std::vector<double>(all.begin(), all.begin() + 4)));
  EXPECT_EQ(weights::latest_checkpoint(run_folder)->step, 20) << "it is saved like any end";
  Run again = make(options, memories().at("segment cache"), run_folder);
  ASSERT_TRUE(again.trainer->resume_latest());
  EXPECT_EQ(again.trainer->run(quiet()).steps, 20) << "a run that is done stays done";
  options.eval_every = 0;
  EXPECT_THROW(make(options, memories().at("segment cache")), base::InputError);
}

TEST_F(TrainerTest, AStepIsKeptWhateverFailsAfterIt) {
  TrainOptions options = small_options();
  options.save_every = 0;
  int64_t fails_at = 6;
  RunHooks hooks = quiet();
  hooks.on_evaluation = [&](const EvaluationPoint& point) {
    base::require(point.step != fails_at, "the evaluation of step {} fails", point.step);
  };
  base::set_log_level(base::LogLevel::silent);
  for (const int64_t step : {2, 6}) {
    fails_at = step;
    const std::string run_folder = folder_ / std::to_string(step);
    Run run = make(options, memories().at("segment cache"), run_folder);
    test::expect_error<base::InputError>([&] { run.trainer->run(hooks); }, {"the evaluation of step"});
    const auto kept = weights::latest_checkpoint(run_folder);
    ASSERT_TRUE(kept.has_value());
    EXPECT_EQ(kept->step, step);
    Run again = make(options, memories().at("segment cache"), run_folder);
    ASSERT_TRUE(again.trainer->resume_latest());
    EXPECT_EQ(again.trainer->run(quiet()).steps, 6);
  }
  // A step saved without its log or evaluation makes up for them when the run goes on.
  hooks = quiet();
  hooks.on_loss = [](const LossPoint& point) { base::require(point.step < 6, "the log fails"); };
  const std::string run_folder = folder_ / "owed";
  Run run = make(options, memories().at("segment cache"), run_folder);
  EXPECT_THROW(run.trainer->run(hooks), base::InputError);
  for (int time = 0; time < 2; ++time) {
    Run again = make(options, memories().at("segment cache"), run_folder);
    ASSERT_TRUE(again.trainer->resume_latest());
    const TrainReport report = again.trainer->run(quiet());
    ASSERT_EQ(report.history.evaluations.size(), 3U);
    EXPECT_EQ(report.history.evaluations.back().step, 6);
  }
  base::set_log_level(base::LogLevel::info);
}

TEST_F(TrainerTest, ARunThatGoesOnIsAskedBeforeItsFirstStep) {
  TrainOptions options = small_options();
  options.save_every = 2;
  const std::string run_folder = folder_ / "run";
  int asked = 0;
  EXPECT_EQ(make(options, {}, run_folder).trainer->run(quiet([&] { return ++asked == 2 ? 99 : 0; })).steps, 2);
  Run again = make(options, {}, run_folder);
  ASSERT_TRUE(again.trainer->resume_latest());
  const double before = again.trainer->seconds();
  const TrainReport report = again.trainer->run(quiet([] { return 99; }));
  EXPECT_EQ(report.stopped, 99);
  EXPECT_EQ(report.steps, 2);
  EXPECT_EQ(again.trainer->seconds(), before);
}

}  // namespace
}  // namespace mnemo::train
