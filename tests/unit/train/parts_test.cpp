// A batch in parts (`accumulate`) leaves the memory of a model as the whole batch does.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "base/error.h"
#include "models/model.h"
#include "tasks/images.h"
#include "tasks/token_loss.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"
#include "train/trainer.h"

namespace mnemo::train {
namespace {

using base::Node;

/// Batches of segments of six tokens and one class each, of `rows` sequences, which may be fewer than the batch size.
class FewSequences final : public tasks::TokenTask {
 public:
  FewSequences(int64_t batch, int64_t rows, size_t segments = 1) : batch_(batch), rows_(rows), segments_(segments) {}
  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return batch_; }
  std::vector<data::Batch> next(const core::ModelInput&) override {
    test::Numbers numbers(static_cast<uint64_t>(next_++));
    data::Batch segment;
    segment.input.tokens = numbers.tokens({rows_, 6}, 7);
    segment.targets = data::TokenTargets{numbers.tokens({rows_, 1}, 4)};
    segment.num_targets = rows_;
    return std::vector<data::Batch>(segments_, segment);
  }
  bool has(data::Part) const override { return false; }
  std::optional<tasks::Evaluation> evaluate(const core::Model&, data::Part) const override { return std::nullopt; }
  weights::NamedTensors save() const override { return {}; }
  void load(const std::function<at::Tensor(const std::string&)>&) override {}

 private:
  int64_t batch_, rows_, next_ = 1;
  size_t segments_;
};

std::unique_ptr<models::Model> model_of(const std::string& options) {
  return models::build(base::read_options<models::ModelOptions>(base::parse_toml(options, "test")), 3);
}

TrainOptions in_parts(int64_t batch, int64_t parts) {
  TrainOptions options;
  options.batch_size = batch;
  options.accumulate = parts;
  options.optimiser = Node::table({{"type", "sgd"}, {"lr", 0.1}});
  options.schedule = Node::table({{"type", "constant"}});
  options.tensorboard = false;
  return options;
}

TEST(TrainingInParts, FewerSequencesThanPartsMakeTheCacheOfTheWholeBatch) {
  for (const auto& [rows, parts] : {std::pair<int64_t, int64_t>{2, 4}, {3, 4}, {2, 8}}) {
    SCOPED_TRACE(fmt::format("{} sequences in {} parts", rows, parts));
    const auto cache_after = [&, rows = rows](int64_t count) {
      const auto model = model_of(
          "segment_size = 6\nembedding.vocab_size = 7\nbackbone = { type = \"encoder\", num_layers = 1, dim = 16, "
          "num_heads = 2, ffn_dim = 32, attention = \"softmax\" }\n"
          "head = { type = \"classification\", num_classes = 4, pool = \"mean\" }\n"
          "[[memory]]\ntype = \"grc\"\ncache_len = 3\nattend = \"sample\"\neval_read = \"updated\"\n");
      FewSequences task(8, rows);
      Trainer trainer(*model, task, in_parts(8, count));
      trainer.step();
      const auto fields = model->initial_state(1).fields();
      EXPECT_EQ(fields.size(), 1U);
      return fields.front().second.clone();
    };
    const at::Tensor whole = cache_after(1);
    EXPECT_GT(whole.abs().max().item<double>(), 0.0);
    EXPECT_LE(test::difference(cache_after(parts), whole), 1e-6);
  }
}

TEST(TrainingInParts, AMemoryOfTheModelIsUpdatedOncePerStep) {
  const auto model = model_of(
      "segment_size = 6\nembedding.vocab_size = 7\nbackbone = { num_layers = 1, dim = 16, num_heads = 2, ffn_dim = 32 "
      "}\n[[memory]]\ntype = \"grc\"\ncache_len = 3\n");
  FewSequences task(4, 4);
  TrainOptions options = in_parts(4, 2);
  const Trainer one(*model, task, options);
  FewSequences cut(4, 4, 2);  // as a task that divides its samples
  Trainer two(*model, cut, options);
  test::expect_error<base::InputError>([&] { two.step(); }, {"accumulate = 2", "found 2"});
  options.segments_per_step = 2;
  test::expect_error<base::InputError>([&] { Trainer(*model, task, options); },
                                       {"'train.accumulate', 'train.segments_per_step'", "found 2 and 2"});
}

// 1/12 + ... + 1/12 of 49 rows is less than 49.
TEST(TrainingInParts, NumbersOfCachedRowsAreWhole) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train", 8);
  const data::ImageOptions options = data::small_images(folder / "train", {14, 14});
  const auto model = model_of(
      "backbone = { type = \"vit\", image_size = [14, 14], patch_size = 2, dim = 8, num_layers = 1, num_heads = 1, "
      "cls_tokens = 0 }\nhead = { type = \"classification\", num_classes = 3, pool = \"mean\" }\n"
      "[[memory]]\ntype = \"attention_cache\"\n");
  tasks::Images task(data::load_images(options), options, {.batch_size = 12});
  Trainer trainer(*model, task, in_parts(12, 12));
  for (int step = 0; step < 2; ++step) {
    trainer.step();
    bool counts = false;
    for (const auto& [field, tensor] : model->initial_state(1).fields()) {
      if (tensor.is_floating_point()) continue;
      counts = true;
      EXPECT_EQ(tensor.item<int64_t>(), 49) << field.path;
    }
    EXPECT_TRUE(counts);
  }
}

// The position in a set of samples is a number of batches.
TEST(TrainingOfSamples, GoesOnWithTheSameBatchesAlone) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train");
  const data::ImageOptions images = data::small_images(folder / "train", {4, 4});
  const auto trainer_with = [&](const TrainOptions& options, const std::function<void(Trainer&)>& use) {
    const auto model = model_of(
        "backbone = { type = \"vit\", image_size = [4, 4], patch_size = 2, dim = 8, num_layers = 1, num_heads = 1 }\n"
        "head = { type = \"classification\", num_classes = 3 }\n");
    tasks::Images task(data::load_images(images), images, {.batch_size = options.batch_size});
    Trainer trainer(*model, task, options, folder / "run");
    use(trainer);
  };
  TrainOptions options = in_parts(4, 1);
  options.steps = 2;
  RunHooks hooks;
  hooks.show_progress = false;
  trainer_with(options, [&](Trainer& trainer) { trainer.run(hooks); });
  trainer_with(options, [&](Trainer& trainer) { EXPECT_TRUE(trainer.resume_latest()); });
  const auto refused = [&](auto change, std::initializer_list<std::string> parts) {
    TrainOptions other = options;
    change(other);
    trainer_with(other, [&](Trainer& trainer) {
      test::expect_error<base::InputError>([&] { trainer.resume_latest(); }, parts);
    });
  };
  refused([](TrainOptions& other) { other.batch_size = 6; },
          {"train.json", "train.batch_size = 4", "the same value; found 6"});
  refused([](TrainOptions& other) { other.seed = 9; }, {"train.json", "train.seed"});
  refused([](TrainOptions& other) { other.shuffle = !other.shuffle; }, {"train.json", "train.shuffle"});
}

TEST(TrainingInParts, AMemoryThatMovesInEvaluationIsRefusedOnSeveralProcesses) {
  const test::TemporaryFolder folder;
  data::make_class_folders(folder / "train");
  const data::ImageOptions options = data::small_images(folder / "train", {4, 4});
  const tasks::Images task(data::load_images(options), options, {.batch_size = 4});
  const auto with = [](const std::string& memory) {
    return model_of(
        "backbone = { type = \"vit\", image_size = [4, 4], patch_size = 2, dim = 8, num_layers = 1, num_heads = 1 }\n"
        "head = { type = \"classification\", num_classes = 3 }\n[[memory]]\ntype = \"attention_cache\"\n" +
        memory);
  };
  task.require_shareable(*with(""));
  task.require_shareable(*with("lanes = \"batch\"\neval_lanes = \"empty\""));
  test::expect_error<base::InputError>([&] { task.require_shareable(*with("lanes = \"batch\"")); },
                                       {"several processes", "carries a memory", "stays empty in evaluation"});
}

}  // namespace
}  // namespace mnemo::train
