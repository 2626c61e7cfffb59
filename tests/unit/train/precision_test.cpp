#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"

namespace mnemo::train {
namespace {

using base::Node;

/// `precision = ops::ProductPrecision::bf16` on a model with recurrent tokens with depth 2, and a segment cache.
class PrecisionTest : public ::testing::Test {
 protected:
  PrecisionTest() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
  }
  static TrainOptions options(ops::ProductPrecision precision) {
    TrainOptions made;
    made.steps = 6;
    made.batch_size = 4;
    made.segments_per_step = 4;
    made.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.01}});
    made.eval_batch_size = 3;
    made.seed = 5;
    made.precision = precision;
    return made;
  }
  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
  };
  Run make(const TrainOptions& options, const std::string& run_folder = {}, double dropout = 0.1,
           at::ScalarType dtype = at::kFloat) {
    Run run;
    run.model = test::small_model(
        corpus_.tokenizer->size(),
        {Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 2}}),
         Node::table({{"type", "segment_cache"}, {"mem_len", 5}})},
        8, dropout, dtype);
    run.task = std::make_unique<tasks::LanguageModel>(corpus_, test::task_options(options));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options, run_folder);
    return run;
  }
  /// Trains for `steps` more steps; returns the checkpoint.
  static std::string train(const Run& run, int64_t steps) {
    RunHooks hooks;
    hooks.show_progress = false;
    const int64_t last = run.trainer->steps_done() + steps;
    hooks.should_stop = [&run, last] { return run.trainer->steps_done() == last ? SIGTERM : 0; };
    return run.trainer->run(hooks).checkpoint;
  }
  static void expect_same(const std::string& a, const std::string& b, const std::string& apart_from = {}) {
    const weights::CheckpointReader one(a), two(b);
    for (const weights::CheckpointFile& file : one.info().files) {
      if (file.name != "timing.safetensors" && file.name != apart_from) {
        EXPECT_TRUE(one.file(file.name) == two.file(file.name)) << file.name << " differs";
      }
    }
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
};

TEST_F(PrecisionTest, Bf16TrainsNearFloat32WithParametersAndStatesInFloat32) {
  const Run full = make(options(ops::ProductPrecision::float32), {}, 0.0),
            rounded = make(options(ops::ProductPrecision::bf16), {}, 0.0);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 6; ++step) {
    const StepOutcome expected = full.trainer->step(), found = rounded.trainer->step();
    EXPECT_NEAR(found.loss, expected.loss, 0.01 * expected.loss);
    EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 0.05 * expected.gradient_norm);
    EXPECT_NE(found.loss, expected.loss);
    EXPECT_NE(found.gradient_norm, expected.gradient_norm);
    (step == 0 ? first : last) = found.loss;
  }
  EXPECT_LT(last, first);
  for (const auto& [name, tensor] : rounded.model->parameters().named())
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  int64_t finer = 0;
  for (const auto& [name, tensor] : rounded.model->parameters().named()) {
    finer += (tensor != tensor.to(at::kBFloat16).to(at::kFloat)).sum().item<int64_t>();
  }
  EXPECT_GT(finer, rounded.model->parameters().count() / 2) << "the weights themselves are not rounded";
}

TEST_F(PrecisionTest, ResumedRunIsBitwiseTheUninterruptedOne) {
  const std::string whole = train(make(options(ops::ProductPrecision::bf16), folder_ / "whole"), 6);
  train(make(options(ops::ProductPrecision::bf16), folder_ / "cut"), 3);
  const Run second = make(options(ops::ProductPrecision::bf16), folder_ / "cut");
  ASSERT_TRUE(second.trainer->resume_latest());
  expect_same(whole, train(second, 3));
}

TEST_F(PrecisionTest, RecomputingIsBitwiseStoring) {
  for (const auto& [name, bptt] : {std::pair("sliding", BpttForm::sliding), std::pair("chunked", BpttForm::chunked)}) {
    SCOPED_TRACE(name);
    TrainOptions stored = options(ops::ProductPrecision::bf16);
    stored.bptt = bptt;
    TrainOptions again = stored;
    again.recompute = TrainOptions::Recompute::segment;
    const std::string run = folder_ / name;
    expect_same(train(make(stored, run + "_stored"), 6), train(make(again, run + "_again"), 6), "train.json");
  }
}

TEST_F(PrecisionTest, EvaluationIsInFloat32) {
  const Run run = make(options(ops::ProductPrecision::bf16));
  train(run, 6);
  const auto& evaluations = run.trainer->history().evaluations;
  ASSERT_EQ(evaluations.size(), 1u);
  const auto expected = run.task->evaluate(*run.model, data::Part::valid);
  ASSERT_TRUE(expected);
  EXPECT_EQ(evaluations[0].evaluation.metrics, expected->metrics);
}

TEST_F(PrecisionTest, WeightsOfFloat64AreRefused) {
  test::expect_error<base::InputError>([&] { make(options(ops::ProductPrecision::bf16), {}, 0.0, at::kDouble); },
                                       {"precision", "bf16", "expected float32", "found Double"});
}

}  // namespace
}  // namespace mnemo::train
