#include "train/trainer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/ignore_target.h"
#include "base/log.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "train/signals.h"

namespace mnemo::train {
namespace {

using base::Node;

const std::map<std::string, std::vector<Node>>& memories() {
  static const std::map<std::string, std::vector<Node>> all = {
      {"none", {}},
      {"segment cache", {Node::table({{"type", "segment_cache"}, {"mem_len", 12}})}},
      {"rmt, depth 1, and cache",
       {Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 1}}),
        Node::table({{"type", "segment_cache"}, {"mem_len", 5}})}},
      {"grc", {Node::table({{"type", "grc"}, {"cache_len", 4}})}},
      {"compressive",
       {Node::table({{"type", "compressive"}, {"mem_len", 5}, {"compressed_len", 3}, {"compression_rate", 2}})}},
  };
  return all;
}

TrainOptions small_options() {
  TrainOptions options;
  options.steps = 6;
  options.batch_size = 4;
  options.segments_per_step = 3;
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.01}});
  options.schedule = Node::table({{"type", "cosine"}, {"warmup_steps", 2}});
  options.log_every = 4;
  options.eval_every = 2;
  options.eval_batch_size = 3;
  options.seed = 5;
  return options;
}

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
  }

  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
  };
  Run make(const TrainOptions& options, const std::vector<Node>& memory, const std::string& run_folder = {},
           double dropout = 0.0, at::ScalarType dtype = at::kFloat) {
    Run run;
    run.model = test::small_model(corpus_.tokenizer->size(), memory, 8, dropout, dtype);
    run.task = std::make_unique<tasks::LanguageModel>(corpus_, test::task_options(options));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options, run_folder);
    return run;
  }
  /// A corpus of documents separated by blank lines, all used for training.
  void use_documents(const std::string& documents) {
    data::TextOptions text;
    text.train = folder_ / "documents.txt";
    text.document_separator = "blank_line";
    text.valid_fraction = text.test_fraction = 0;
    base::write_file_atomic(text.train, documents);
    corpus_ = data::load_corpus(text);
  }
  static RunHooks quiet(std::function<int()> stop = [] { return 0; }) {
    RunHooks hooks;
    hooks.stop = std::move(stop);
    hooks.show_progress = false;
    return hooks;
  }
  /// The files of two checkpoints are equal byte for byte, except those that contain times.
  static void expect_same(const std::string& a, const std::string& b, const std::string& apart_from = {}) {
    const weights::CheckpointReader one(a), two(b);
    ASSERT_EQ(one.info().files.size(), two.info().files.size());
    for (const weights::CheckpointFile& file : one.info().files) {
      if (file.name != "timing.safetensors" && file.name != apart_from) {
        EXPECT_TRUE(one.file(file.name) == two.file(file.name)) << file.name << " differs";
      }
    }
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
};

TEST_F(TrainerTest, AMemoryThatTheModelLacksIsAnotherModel) {
  const std::string run_folder = folder_ / "run";
  const TrainOptions options = small_options();
  const TrainReport report = make(options, memories().at("segment cache"), run_folder).trainer->run(quiet());
  const Run other = make(options, {}, run_folder);
  test::expect_error<base::InputError>([&] { other.trainer->resume(report.checkpoint); },
                                       {report.checkpoint + "/state.safetensors", "it is another model"});
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
    EXPECT_EQ(stopped.signal, SIGTERM);
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

// What evaluations leave behind: the best metric so far, and how far a plateau has reduced the learning rate.
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
  Run refused = make(options, memories().at("grc"));
  test::expect_error<base::InputError>([&] { refused.trainer->step(); }, {"accumulate = 2", "found 3"});
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
        for (const data::TokenSegment& segment : twin.next(core::TokenInput{.segment_size = 8})) {
          for (int64_t part = 0; part < parts; ++part) {
            const at::Tensor own = segment.targets.narrow(0, part * 4 / parts, 4 / parts);
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
      options.recompute = "segment";
      const TrainReport found = make(options, memory, again, 0.1).trainer->run(quiet());
      expect_same(expected.checkpoint, found.checkpoint, "train.json");  // the options
    }
  }
}

TEST_F(TrainerTest, RecomputeAndItsLimitGoTogether) {
  TrainOptions options = small_options();
  options.recompute = "auto";
  test::expect_error<base::InputError>([&] { make(options, {}); }, {"memory_limit", "auto", "found none"});
  options.memory_limit = 100;
  make(options, {});
  options.recompute = "segment";
  test::expect_error<base::InputError>([&] { make(options, {}); },
                                       {"memory_limit", "auto", "found recompute = \"segment\""});
  options.recompute = "all";
  test::expect_error<base::InputError>([&] { make(options, {}); }, {"recompute", "all", "segment"});
}

TEST_F(TrainerTest, TheModelsCacheIsWhatTheStepMadeOfIt) {
  TrainOptions options = small_options();
  options.segments_per_step = 1;
  Run run = make(options, memories().at("grc"), {}, 0.0, at::kDouble);
  tasks::LanguageModel twin(corpus_, test::task_options(options));
  for (int64_t step = 0; step < 3; ++step) {
    const at::NoGradGuard no_grad;
    const core::State before = run.model->initial_state(4);
    const auto expected = run.model
                              ->forward(tasks::model_input(twin.next(core::TokenInput{.segment_size = 8}).front(),
                                                           core::Mode::train),
                                        before)
                              .state.fields();
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
  for (const data::TokenSegment& segment : twin.next(core::TokenInput{.segment_size = 8})) {
    const at::NoGradGuard no_grad;
    const auto step = run.model->forward(tasks::model_input(segment, core::Mode::train), run.model->initial_state(3));
    sum += run.model->nll(step.hidden, segment.targets).sum().item<double>();
    count += (segment.targets != -100).sum().item<int64_t>();
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
  for (const data::TokenSegment& segment : twin.next(core::TokenInput{.segment_size = 8})) {
    const auto step = run.model->forward(tasks::model_input(segment, core::Mode::train), state);
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
  test::expect_error<base::InputError>([&] { run.trainer->run(hooks); },
                                       {"step 4", "nan", "learning rate 0.0085", run_folder + "/step-00000002"});
  for (const auto& [name, tensor] : run.model->parameters().named()) {
    EXPECT_TRUE(at::equal(at::nan_to_num(tensor), at::nan_to_num(before.at(name)))) << name;
  }
}

TEST_F(TrainerTest, SignalFinishesTheStepAndSaves) {
  const std::string run_folder = folder_ / "run";
  Run run = make(small_options(), {}, run_folder);
  const SignalGuard guard;
  RunHooks hooks;
  hooks.show_progress = false;
  hooks.on_evaluation = [](const EvaluationPoint& point) {
    if (point.step == 4) ::raise(SIGINT);
  };
  const TrainReport report = run.trainer->run(hooks);
  EXPECT_EQ(report.signal, SIGINT);
  EXPECT_EQ(report.steps, 4);
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
  EXPECT_EQ(report.signal, 0);
  EXPECT_EQ(values(report), (std::vector<double>(all.begin(), all.begin() + 4)));
  EXPECT_EQ(weights::latest_checkpoint(run_folder)->step, 20) << "it is saved like any end";
  Run again = make(options, memories().at("segment cache"), run_folder);
  ASSERT_TRUE(again.trainer->resume_latest());
  EXPECT_EQ(again.trainer->run(quiet()).steps, 20) << "a run that is done stays done";
  options.eval_every = 0;
  EXPECT_THROW(make(options, memories().at("segment cache")), base::InputError);
}

TEST_F(TrainerTest, ParametersWithoutAGradientAreNamedOnce) {
  const auto log_of = [&](int64_t segments, const std::vector<Node>& memory, bool frozen) {
    TrainOptions options = small_options();
    options.steps = 12;
    options.segments_per_step = segments;
    Run run = make(options, memory);
    if (frozen) {
      for (const layers::Parameter& parameter : run.model->parameters().all()) {
        if (parameter.name.find("gate") != std::string::npos || parameter.name.find("candidate") != std::string::npos)
          at::Tensor(parameter.tensor).set_requires_grad(false);
      }
    }
    std::string log;
    base::set_log_sink([&](std::string_view line) { log += line; });
    run.trainer->run(quiet());
    base::set_log_sink({});
    return log;
  };
  // The gates write what the next segment reads: with one segment a step no loss is behind them.
  const std::vector<Node>& grc = memories().at("grc");
  const std::string log = log_of(1, grc, false);
  for (const char* name : {"warning: ", "no gradient reaches 6 of ", "attn.grc.reset_gate.weight",
                           "attn.grc.update_gate.bias", "attn.grc.candidate.weight", "segments_per_step"})
    EXPECT_NE(log.find(name), std::string::npos) << name << " in: " << log;
  EXPECT_EQ(log.find("no gradient"), log.rfind("no gradient")) << log;
  EXPECT_EQ(log.find("grc.lambda"), std::string::npos) << log;
  EXPECT_EQ(log_of(2, grc, false).find("no gradient"), std::string::npos);
  EXPECT_EQ(log_of(1, {}, false).find("no gradient"), std::string::npos);
  EXPECT_EQ(log_of(1, grc, true).find("no gradient"), std::string::npos) << "frozen on purpose";
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
                                       {"optimiser.safetensors", "exp_avg"});
}

}  // namespace
}  // namespace mnemo::train
