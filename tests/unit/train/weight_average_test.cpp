#include "train/weight_average.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tasks/images.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"
#include "weights/model_tensors.h"

namespace mnemo::train {
namespace {

using base::Node;

class WeightAverageTest : public ::testing::Test {
 protected:
  WeightAverageTest() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
    options_.steps = 6;
    options_.batch_size = 4;
    options_.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.05}});
    options_.log_every = 4;
    options_.eval_every = 2;
    options_.ema_decay = 0.7;
  }

  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
  };
  Run begin(const TrainOptions& options, const std::string& folder = {}) const {
    Run run;
    run.model = test::small_model(corpus_.tokenizer->size(), {Node::table({{"type", "grc"}, {"cache_len", 4}})});
    run.task = std::make_unique<tasks::LanguageModel>(corpus_, test::task_options(options));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options, folder);
    return run;
  }
  static weights::NamedTensors copies(const core::Model& model) {
    weights::NamedTensors all;
    for (const auto& [name, tensor] : weights::model_tensors(model)) all.emplace_back(name, tensor.detach().clone());
    return all;
  }
  static void expect_same(const weights::NamedTensors& a, const weights::NamedTensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first;
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
  TrainOptions options_;
};

TEST_F(WeightAverageTest, IsTheFormulaOfEveryStepsWeightsAndCaches) {
  Run run = begin(options_);
  weights::NamedTensors expected = copies(*run.model);
  for (int step = 0; step < 4; ++step) {
    run.trainer->step();
    const auto now = copies(*run.model);
    for (size_t i = 0; i < now.size(); ++i) expected[i].second = 0.7 * expected[i].second + 0.3 * now[i].second;
  }
  const auto own = copies(*run.model);
  run.trainer->take_average();
  const auto found = copies(*run.model);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i].second, expected[i].second, 1e-5, 1e-6)) << found[i].first;
  }
  EXPECT_FALSE(at::allclose(found.front().second, own.front().second, 1e-5, 1e-6));
  EXPECT_THROW(run.trainer->step(), base::InternalError);
}

// The mean of unrelated images is no image.
TEST_F(WeightAverageTest, RowsOfTheLastImagesAreTheNewest) {
  data::make_class_folders(folder_ / "train");
  const data::ImageOptions images = data::small_images(folder_ / "train", {4, 4});
  tasks::Images task(data::load_images(images), images, {.batch_size = 4});
  const auto model = models::build(
      base::read_options<models::ModelOptions>(base::parse_toml(
          "backbone = { type = \"vit\", image_size = [4, 4], patch_size = 2, dim = 8, num_layers = 1, num_heads = 1 }\n"
          "head = { type = \"classification\", num_classes = 3 }\n[[memory]]\ntype = \"attention_cache\"",
          "test")),
      1);
  Trainer trainer(*model, task, options_);
  for (int step = 0; step < 3; ++step) trainer.step();
  const auto own = copies(*model);
  trainer.take_average();
  const auto found = copies(*model);
  int64_t rows = 0, averages = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const bool newest = at::equal(found[i].second, own[i].second);
    if (found[i].first.ends_with("attention_cache.rows")) {
      EXPECT_TRUE(newest);
      ++rows;
    }
    averages += !newest;
  }
  EXPECT_EQ(rows, 1);
  EXPECT_GT(averages, 5);
}

TEST_F(WeightAverageTest, IsWhatIsMeasuredAndLeavesTrainingAlone) {
  TrainOptions without = options_;
  without.ema_decay.reset();
  Run plain = begin(without), averaged = begin(options_);
  RunHooks hooks;
  hooks.show_progress = false;
  plain.trainer->run(hooks);
  const TrainReport report = averaged.trainer->run(hooks);
  expect_same(copies(*plain.model), copies(*averaged.model));
  averaged.trainer->take_average();
  const double value = averaged.task->evaluate(*averaged.model, data::Part::valid)->at("nll");
  EXPECT_EQ(report.history.evaluations.back().evaluation.at("nll"), value);
  EXPECT_NE(plain.trainer->history().evaluations.back().evaluation.at("nll"), value);
}

TEST_F(WeightAverageTest, ResumesBitwise) {
  RunHooks hooks;
  hooks.show_progress = false;
  hooks.should_stop = {};
  Run whole = begin(options_);
  whole.trainer->run(hooks);
  int steps = 0;
  hooks.should_stop = [&] { return ++steps == 3 ? 15 : 0; };
  Run first = begin(options_, folder_ / "run");
  first.trainer->run(hooks);
  hooks.should_stop = {};
  Run second = begin(options_, folder_ / "run");
  ASSERT_TRUE(second.trainer->resume_latest());
  second.trainer->run(hooks);
  whole.trainer->take_average();
  second.trainer->take_average();
  expect_same(copies(*whole.model), copies(*second.model));
  EXPECT_EQ(whole.trainer->history().evaluations.back().evaluation.at("nll"),
            second.trainer->history().evaluations.back().evaluation.at("nll"));

  TrainOptions without = options_;
  without.ema_decay.reset();
  Run other = begin(without, folder_ / "run");
  test::expect_error<base::InputError>([&] { other.trainer->resume_latest(); },
                                       {"holds a moving average of the weights, and train.ema_decay is unset"});
}

}  // namespace
}  // namespace mnemo::train
