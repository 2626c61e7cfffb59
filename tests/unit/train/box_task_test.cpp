// A task with targets and a loss of its own: any number of boxes for each image, regressed from pooled features.
// Nothing outside this file knows of boxes.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <array>
#include <mutex>

#include "models/model.h"
#include "tasks/task.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"
#include "train/trainer.h"

namespace mnemo::train {
namespace {

using base::Node;

constexpr int64_t kSize = 8, kColours = 2, kNumbers = 5;  // pixels of a side; numbers of a predicted object
/// The colours of each image, as bits: the shares of a batch of 8 have 0 to 5 boxes.
constexpr std::array<int64_t, 8> kColoursOf = {0, 0, 1, 3, 2, 0, 3, 3};

/// The objects of each image of a batch.
struct BoxTargets {
  data::Ragged boxes;   ///< [N,4]: x1, y1, x2, y2 in parts of the side
  data::Ragged labels;  ///< [N] int64: the colour
  data::Ragged masks;   ///< [N,H,W] bool
  template <class F>
  void visit(F&& f) {
    f("boxes", boxes);
    f("labels", labels);
    f("masks", masks);
  }
};

/// Images of up to one rectangle of each colour. The model predicts box and share of the image for each colour; the
/// loss is the sum of absolute differences for the colours that are there.
class Boxes final : public tasks::Task {
 public:
  explicit Boxes(int64_t batch, at::ScalarType dtype = at::kFloat) : batch_(batch), dtype_(dtype) {}
  std::string metric() const override { return "box_error"; }
  bool lower_is_better() const override { return true; }
  std::optional<double> metric_of_loss(double loss) const override { return loss; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return batch_; }
  std::vector<data::Batch> next(const core::ModelInput&) override { return {make(next_++, batch_)}; }

  tasks::TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                       int64_t targets) const override {
    const auto& objects = batch.targets.as<BoxTargets>();
    const at::Tensor predicted = model.logits(step.hidden).view({-1, kColours, kNumbers});
    const at::Tensor image = at::repeat_interleave(at::tensor(objects.boxes.counts, at::kLong));
    const at::Tensor share = objects.masks.values.to(dtype_).mean({1, 2}).unsqueeze(1);
    const at::Tensor wanted = at::cat({objects.boxes.values, share}, 1);
    return (predicted.index({image, objects.labels.values}) - wanted).abs().sum().div(static_cast<double>(targets));
  }

  bool has(data::Part) const override { return true; }
  std::optional<tasks::Evaluation> evaluate(const core::Model& model, data::Part) const override {
    const at::NoGradGuard no_grad;
    const data::Batch batch = make(1 << 20, 64);
    const core::StepResult step = model.forward(batch.input, model.initial_state(64));
    const double error = loss(model, step, batch, batch.num_targets).total.item<double>();
    return tasks::Evaluation{{{"box_error", error}}, batch.num_targets};
  }
  weights::NamedTensors save() const override { return {{"next", at::full({1}, next_, at::kLong)}}; }
  void load(const std::function<at::Tensor(const std::string&)>& find) override {
    next_ = find("next").item<int64_t>();
  }

 private:
  data::Batch make(int64_t number, int64_t count) const {
    test::Numbers numbers(static_cast<uint64_t>(number) + 7);
    const at::Tensor corners = numbers.tokens({count, kColours, 2}, 4),
                     sides = numbers.tokens({count, kColours, 2}, 4) + 1;
    data::Batch batch;
    batch.input.pixels = at::zeros({count, 3, kSize, kSize}, dtype_);
    std::vector<at::Tensor> boxes, masks;
    std::vector<int64_t> labels, counts(static_cast<size_t>(count), 0);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t colour = 0; colour < kColours; ++colour) {
        if ((kColoursOf[static_cast<size_t>(i) % kColoursOf.size()] >> colour & 1) == 0) continue;
        const at::Tensor first = corners[i][colour], end = first + sides[i][colour];
        const auto range = [&](int64_t axis) {
          return at::indexing::Slice(first[axis].item<int64_t>(), end[axis].item<int64_t>());
        };
        at::Tensor mask = at::zeros({kSize, kSize}, at::kBool);
        mask.index_put_({range(1), range(0)}, true);
        batch.input.pixels[i][colour].masked_fill_(mask, 1.0);
        boxes.push_back(at::cat({first, end}).to(dtype_) / kSize);
        masks.push_back(mask);
        labels.push_back(colour);
        ++counts[static_cast<size_t>(i)];
      }
    }
    batch.targets = BoxTargets{
        {at::stack(boxes), counts}, {at::tensor(labels, at::kLong), counts}, {at::stack(masks), counts}};
    batch.num_targets = static_cast<int64_t>(boxes.size());
    return batch;
  }

  int64_t batch_;
  at::ScalarType dtype_;
  int64_t next_ = 0;
};

std::unique_ptr<models::Model> box_model(double dropout, at::ScalarType dtype = at::kFloat) {
  const Node node = base::parse_toml(
      fmt::format("backbone = {{ type = \"vit\", image_size = [8, 8], patch_size = 2, dim = 32, num_layers = 1, "
                  "num_heads = 2, dropout = {} }}\nhead = {{ type = \"classification\", num_classes = {} }}\n",
                  dropout, kColours * kNumbers),
      "test");
  return models::build(base::read_options<models::ModelOptions>(node), 3, dtype);
}

TrainOptions box_options(int64_t steps, int64_t batch) {
  TrainOptions options;
  options.steps = steps;
  options.batch_size = batch;
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.003}});
  options.log_every = options.eval_every = 1000;
  options.tensorboard = false;
  return options;
}

RunHooks until(std::function<bool()> stops) {
  RunHooks hooks;
  hooks.should_stop = [stops = std::move(stops)] { return stops() ? SIGTERM : 0; };
  hooks.show_progress = false;
  return hooks;
}

TEST(BoxTask, LearnsWhereObjectsAre) {
  const auto model = box_model(0.0);
  Boxes task(16);
  const double before = task.evaluate(*model, data::Part::valid)->at("box_error");
  Trainer trainer(*model, task, box_options(300, 16));
  EXPECT_LT(trainer.run(until([] { return false; })).history.evaluations.back().evaluation.at("box_error"),
            0.5 * before);
}

TEST(BoxTask, AResumedRunIsBitwiseTheUninterruptedOne) {
  const test::TemporaryFolder folder;
  const auto run = [&](const std::string& path, int64_t last) {
    const auto model = box_model(0.1);
    Boxes task(8);
    Trainer trainer(*model, task, box_options(6, 8), path);
    trainer.resume_latest();
    trainer.run(until([&] { return trainer.steps_done() == last; }));
  };
  run(folder / "whole", 6);
  run(folder / "cut", 3);
  run(folder / "cut", 6);
  const weights::CheckpointReader whole(folder / "whole/step-00000006"), cut(folder / "cut/step-00000006");
  for (const weights::CheckpointFile& file : whole.info().files) {
    if (file.name == "timing.safetensors") continue;
    EXPECT_TRUE(whole.file(file.name) == cut.file(file.name)) << file.name;
  }
}

/// Losses, norms of gradients and the parameters of three steps.
std::vector<at::Tensor> three_steps(int64_t accumulate, std::mutex& mutex,
                                    const std::shared_ptr<distributed::Group>& group = nullptr) {
  TrainOptions options = box_options(3, 8);
  options.accumulate = accumulate;
  std::unique_lock lock(mutex);
  const auto model = box_model(0.0, at::kDouble);
  Boxes task(8, at::kDouble);
  Trainer trainer(*model, task, options, {}, {}, group);
  lock.unlock();
  std::vector<at::Tensor> found;
  for (int step = 0; step < 3; ++step) {
    const StepOutcome outcome = trainer.step();
    EXPECT_EQ(outcome.targets, 8);
    found.push_back(at::tensor({outcome.loss, outcome.total, outcome.gradient_norm}, at::kDouble));
  }
  for (const auto& [name, tensor] : model->parameters().named()) found.push_back(tensor.detach().clone());
  return found;
}

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(test::difference(found[i], expected[i]), 1e-12) << i;
}

// Parts differ in their number of boxes, so a mean over each would be another loss.
TEST(BoxTask, InPartsItIsTheWholeBatch) {
  std::mutex mutex;
  const std::vector<at::Tensor> whole = three_steps(1, mutex);
  for (const int64_t parts : {2, 4, 8}) expect_near(three_steps(parts, mutex), whole);
}

TEST(BoxTask, OnTwoRanksItIsOneProcess) {
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  std::mutex mutex;
  const std::vector<at::Tensor> alone = three_steps(1, mutex);
  std::vector<std::vector<at::Tensor>> ranks(2);
  test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
    ranks[static_cast<size_t>(group->rank())] = three_steps(2, mutex, group);
  });
  for (const std::vector<at::Tensor>& rank : ranks) expect_near(rank, alone);
}

}  // namespace
}  // namespace mnemo::train
