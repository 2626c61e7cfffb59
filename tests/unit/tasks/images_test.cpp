#include "tasks/images.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "core/model.h"
#include "core/state.h"
#include "layers/parameters.h"
#include "tests/support/expect_error.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::tasks {
namespace {

data::ImageOptions options_of(const std::string& train) {
  data::ImageOptions options = data::small_images(train, {8, 8});
  options.valid_fraction = 0.25;
  return options;
}

/// Predicts a class from the mean of the pixels, so that every metric is known.
class MeanModel : public core::Model {
 public:
  explicit MeanModel(int64_t classes) : classes_(classes) {}
  core::StepResult forward(const core::Segment& segment, const core::State&) const override {
    core::StepResult result;
    result.hidden = segment.pixels.mean({1, 2, 3}).view({-1, 1, 1});
    seen += segment.pixels.size(0);
    return result;
  }
  core::State initial_state(int64_t) const override { return {}; }
  at::Tensor logits(const at::Tensor& hidden) const override {
    return hidden * at::arange(classes_, at::kFloat);  // increasing: the last class; decreasing: the first
  }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return -at::log_softmax(logits(hidden), -1).gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  }
  const layers::ParameterSet& parameters() const override { return parameters_; }
  const core::ModelInput& input() const override { return input_; }
  int64_t bptt_depth(const std::string&) const override { return 0; }
  void commit(const core::State&) override {}
  mutable int64_t seen = 0;

 private:
  core::ModelInput input_ = core::ImageInput{};
  int64_t classes_;
  layers::ParameterSet parameters_;
};

TEST(ImagesTask, EvaluationsMeasureTrainingImagesToo) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  const data::ImageOptions options = options_of(folder / "train");
  const MeanModel model(3);
  const Images plain(data::load_images(options), options, {.batch_size = 4});
  const Images both(data::load_images(options), options, {.batch_size = 4, .eval_train_samples = 6});
  const auto expected = *plain.evaluate(model, data::Part::valid), seen = *plain.evaluate(model, data::Part::train);
  model.seen = 0;
  const auto found = *both.evaluate(model, data::Part::valid);
  EXPECT_EQ(model.seen, expected.predictions + 6);
  EXPECT_EQ(found.predictions, expected.predictions);
  EXPECT_EQ(found.at("accuracy"), expected.at("accuracy"));
  const Images all(data::load_images(options), options, {.batch_size = 4, .eval_train_samples = 1000});
  EXPECT_EQ(all.evaluate(model, data::Part::valid)->at("train_accuracy"), seen.at("accuracy"));
  EXPECT_EQ(all.evaluate(model, data::Part::valid)->at("train_nll"), seen.at("nll"));
  EXPECT_EQ(both.evaluate(model, data::Part::train)->metrics.size(), seen.metrics.size()) << "not of itself";
}

TEST(ImagesTask, GivesPixelsLabelsAndSoftTargetsWhereLabelsAreMixed) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  data::ImageOptions options = options_of(folder / "train");
  Images plain(data::load_images(options), options, {.batch_size = 4});
  const auto segment = plain.next(core::ImageInput{}).front();
  EXPECT_EQ(segment.input.pixels.sizes(), (std::vector<int64_t>{4, 3, 8, 8}));
  const auto& classes = segment.targets.as<ImageTargets>();
  EXPECT_EQ(classes.labels.sizes(), (std::vector<int64_t>{4, 1}));
  EXPECT_FALSE(classes.soft.defined());
  EXPECT_EQ(segment.num_targets, 4);
  options.augment.label_smoothing = 0.1;
  Images smoothed(data::load_images(options), options, {.batch_size = 4});
  const data::Batch batch = smoothed.next(core::ImageInput{}).front();
  const auto& mixed = batch.targets.as<ImageTargets>();
  EXPECT_EQ(mixed.soft.sizes(), (std::vector<int64_t>{4, 1, 3}));
  EXPECT_TRUE(at::equal(mixed.soft.argmax(-1), mixed.labels));
  EXPECT_TRUE(at::allclose(mixed.soft.sum(-1), at::ones({4, 1})));
}

TEST(ImagesTask, TheLossOfSharesIsTheirCrossEntropy) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  data::ImageOptions options = options_of(folder / "train");
  options.augment.mixup = 0.8;
  options.augment.label_smoothing = 0.1;
  Images task(data::load_images(options), options, {.batch_size = 4});
  const auto segment = task.next(core::ImageInput{}).front();
  const MeanModel model(3);
  const core::StepResult step = model.forward(core::in_training(segment.input), model.initial_state(4));
  const auto& classes = segment.targets.as<ImageTargets>();
  double expected = 0, of_labels = 0;
  for (int64_t image = 0; image < 4; ++image) {
    const auto mean = step.hidden[image].item<double>();  // class k has the logit k times the mean
    const double sum = 1 + std::exp(mean) + std::exp(2 * mean);
    for (int64_t k = 0; k < 3; ++k) {
      const double nats = std::log(sum) - static_cast<double>(k) * mean;
      expected += classes.soft[image][0][k].item<double>() * nats / 4;
      if (classes.labels[image].item<int64_t>() == k) of_labels += nats / 4;
    }
  }
  const TaskLoss loss = task.loss(model, step, segment, segment.num_targets);
  EXPECT_NEAR(loss.reported.item<double>(), expected, 1e-6);
  EXPECT_NEAR(loss.total.item<double>(), expected, 1e-6);
  EXPECT_GT(std::abs(expected - of_labels), 1e-4) << "labels alone would give another loss";
}

TEST(ImagesTask, MeasuresTopOneTopFiveAndNllOverThePart) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  const data::ImageOptions options = options_of(folder / "train");
  const Images task(data::load_images(options), options, {.batch_size = 4, .eval_batch_size = 5, .eval_samples = 100});
  MeanModel model(3);
  const auto found = task.evaluate(model, data::Part::valid);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(model.seen, 6);
  EXPECT_EQ(found->predictions, 6);
  const data::ImageTransform transform(options);
  at::Tensor pixels = at::empty({3, 8, 8});
  int64_t right = 0;
  for (int64_t i = 0; i < 6; ++i) {
    transform.measure(*task.sets().valid->read(i), pixels.mutable_data_ptr<float>());
    right += task.sets().valid->label(i) == (pixels.mean().item<double>() > 0 ? 2 : 0);
  }
  EXPECT_DOUBLE_EQ(found->at("accuracy"), static_cast<double>(right) / 6);
  EXPECT_EQ(found->metrics.size(), 2u) << "each of three classes is among the first five";
  // Of nine classes, the five largest logits are those of the first five where the mean is negative.
  const auto of_nine = task.evaluate(MeanModel(9), data::Part::valid);
  int64_t negative = 0;
  for (int64_t i = 0; i < 6; ++i) {
    transform.measure(*task.sets().valid->read(i), pixels.mutable_data_ptr<float>());
    negative += pixels.mean().item<double>() < 0;
  }
  EXPECT_DOUBLE_EQ(of_nine->at("top5_accuracy"), static_cast<double>(negative) / 6);
  EXPECT_EQ(task.evaluate(model, data::Part::test), std::nullopt);
}

/// How many images a place of the batch has had.
struct SeenState {
  at::Tensor count;
  template <class F>
  void visit(F&& f) {
    f("count", count, "B");
  }
};

/// Predicts from what an image has more than the batch on average, and counts the images of each place.
class BatchModel final : public MeanModel {
 public:
  using MeanModel::MeanModel;
  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    core::StepResult result = MeanModel::forward(segment, state);
    result.hidden = result.hidden - result.hidden.mean();
    before.push_back(state.as<SeenState>().count);
    result.state = core::State(SeenState{before.back() + 1});
    return result;
  }
  core::State initial_state(int64_t batch) const override { return core::State(SeenState{at::zeros({batch})}); }
  mutable std::vector<at::Tensor> before;
};

TEST(ImagesTask, AnUnreadableImageIsNoPartOfItsBatch) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train");
  data::make_class_folders(folder / "valid");
  data::ImageOptions options = options_of(folder / "train");
  options.valid = folder / "valid";
  options.valid_fraction = 0.0;
  options.broken = data::ImageOptions::Broken::skip;
  base::set_log_level(base::LogLevel::silent);
  const auto nll = [&](int64_t batch, const BatchModel& model) {
    const Images task(data::load_images(options), options, {.batch_size = 4, .eval_batch_size = batch});
    return task.evaluate(model, data::Part::valid)->at("nll");
  };
  const std::string second_bee = folder / "valid/bee/1.jpg";
  ASSERT_TRUE(std::filesystem::exists(second_bee));
  data::write_text(second_bee, "broken");
  const BatchModel model(3);
  const double with = nll(12, model);
  nll(4, model);
  base::set_log_level(base::LogLevel::info);
  ASSERT_EQ(model.before.size(), 4U);
  EXPECT_EQ(model.before[2].sizes(), at::IntArrayRef({3}));
  EXPECT_TRUE(at::equal(model.before[3], at::tensor({2.0F, 1.0F, 2.0F, 2.0F}))) << model.before[3];
  std::filesystem::remove(second_bee);
  EXPECT_EQ(nll(11, BatchModel(3)), with);
}

TEST(ImagesTask, GoesOnWhereItWasSavedWithAnyNumberOfWorkers) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  data::ImageOptions options = options_of(folder / "train");
  options.augment.mixup = 0.8;
  Images first(data::load_images(options), options, {.batch_size = 5, .seed = 3});
  for (int i = 0; i < 7; ++i) first.next(core::ImageInput{});
  const auto saved = first.save();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
  for (const int64_t workers : {0, 1, 3}) {
    options.workers = workers;
    Images second(data::load_images(options), options, {.batch_size = 5, .seed = 3});
    second.next(core::ImageInput{});
    second.load(find);
    EXPECT_DOUBLE_EQ(second.epoch(), 35.0 / 18.0);
    Images third(data::load_images(options), options, {.batch_size = 5, .seed = 3});
    for (int i = 0; i < 7; ++i) third.next(core::ImageInput{});
    for (int i = 0; i < 3; ++i) {
      const auto expected = third.next(core::ImageInput{}).front(), found = second.next(core::ImageInput{}).front();
      EXPECT_TRUE(at::equal(expected.input.pixels, found.input.pixels) &&
                  at::equal(expected.targets.as<ImageTargets>().soft, found.targets.as<ImageTargets>().soft))
          << workers;
    }
  }
  options.valid_fraction = 0.0;
  Images other(data::load_images(options), options, {.batch_size = 5, .seed = 3});
  test::expect_error<base::InputError>([&] { other.load(find); },
                                       {"it belongs to other images than those of data.train"});
}

}  // namespace
}  // namespace mnemo::tasks
