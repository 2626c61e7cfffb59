// A task with one target per segment works with trainer, segment BPTT, recomputation and checkpoints like any other.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include "base/ignore_target.h"
#include "metrics/accuracy.h"
#include "models/model.h"
#include "tasks/token_loss.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"

namespace mnemo::train {
namespace {

using base::Node;

/// Documents of up to three segments of four tokens, right-aligned: the class is that of the first token, predicted in
/// the last segment.
class FirstToken final : public tasks::TokenTask {
 public:
  explicit FirstToken(int64_t batch) : batch_(batch) {}
  std::string metric() const override { return "accuracy"; }
  bool lower_is_better() const override { return false; }
  std::optional<double> metric_of_loss(double) const override { return std::nullopt; }
  bool carries_state() const override { return false; }
  int64_t batch_size() const override { return batch_; }

  std::vector<data::Batch> next(const core::ModelInput& input) override {
    return make(next_++, core::token_input(input).segment_size, batch_);
  }

  bool has(data::Part) const override { return true; }
  std::optional<tasks::Evaluation> evaluate(const core::Model& model, data::Part) const override {
    const at::NoGradGuard no_grad;
    metrics::Accuracy accuracy;
    core::State state = model.initial_state(64);
    for (const data::Batch& segment : make(1 << 20, core::token_input(model.input()).segment_size, 64)) {
      const core::StepResult step = model.forward(segment.input, state);
      state = step.state;
      accuracy.add_logits(model.logits(step.hidden), data::token_targets(segment));
    }
    return tasks::Evaluation{{{"accuracy", accuracy.value()}}};
  }
  weights::NamedTensors save() const override { return {{"next", at::full({1}, next_, at::kLong)}}; }
  void load(const std::function<at::Tensor(const std::string&)>& find) override {
    next_ = find("next").item<int64_t>();
  }

 private:
  static std::vector<data::Batch> make(int64_t number, int64_t size, int64_t batch) {
    test::Numbers numbers(static_cast<uint64_t>(number) + 5);
    const int64_t total = 3 * size;
    const at::Tensor lengths = numbers.tokens({batch, 1}, total) + 1,
                     first = total - (lengths + size - 1).floor_divide(size) * size;
    const at::Tensor words = numbers.tokens({batch, total}, 4) + 3;
    std::vector<data::Batch> segments;
    // The document starts at a segment boundary; its last segment is padded on the right.
    const at::Tensor place = at::arange(total).unsqueeze(0),
                     real = (place >= first).logical_and(place < first + lengths);
    const at::Tensor label = words.gather(1, first) - 3;
    for (int64_t s = 0; s < 3; ++s) {
      data::Batch segment;
      segment.input.tokens = words.narrow(1, s * size, size).contiguous();
      segment.input.valid = real.narrow(1, s * size, size).contiguous();
      segment.targets = data::TokenTargets{s == 2 ? label : at::full({batch, 1}, base::kIgnoreTarget, at::kLong)};
      segment.num_targets = s == 2 ? batch : 0;
      segments.push_back(segment);
    }
    return segments;
  }

  int64_t batch_;
  int64_t next_ = 0;
};

std::unique_ptr<models::Model> make_model(const std::vector<std::string>& assignments, double dropout = 0.0) {
  Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 7\n[backbone]\ntype = \"encoder\"\nnum_layers = 1\ndim = "
      "16\nnum_heads = 2\n"
      "ffn_dim = 32\nattention = \"softmax\"\nposition = { type = \"learned\", max_len = 16 }\ninit_std = 0.2\n"
      "[head]\ntype = \"classification\"\nnum_classes = 4\n",
      "test");
  node.find("backbone")->set("dropout", dropout);
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return models::build(base::read_options<models::ModelOptions>(node), 3);
}

const std::vector<std::string> kRmt = {"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2",
                                       "memory[0].layout=encoder",        "memory[0].cls_token=0",
                                       "memory[0].sep_token=1",           "memory[0].pad_token=2"};

TrainOptions training_options(int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.batch_size = 16;
  options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.01}});
  options.log_every = options.eval_every = 1000;
  options.tensorboard = false;
  options.seed = 5;
  return options;
}

RunHooks quiet(std::function<int()> stop = [] { return 0; }) {
  RunHooks hooks;
  hooks.should_stop = std::move(stop);
  hooks.show_progress = false;
  return hooks;
}

TEST(ClassificationTraining, LearnsWhatTheFirstOfThreeSegmentsHolds) {
  const auto model = make_model(kRmt);
  FirstToken task(16);
  Trainer trainer(*model, task, training_options(250));
  const TrainReport report = trainer.run(quiet());
  EXPECT_GT(report.history.evaluations.back().evaluation.at("accuracy"), 0.9);
}

TEST(ClassificationTraining, WithoutMemoryTheFirstSegmentIsLost) {
  const auto model = make_model({});
  FirstToken task(16);
  Trainer trainer(*model, task, training_options(150));
  EXPECT_LT(trainer.run(quiet()).history.evaluations.back().evaluation.at("accuracy"), 0.75);
}

TEST(ClassificationTraining, RecomputedAndInPartsItIsTheSame) {
  for (const std::vector<std::string>& assignments :
       {kRmt, std::vector<std::string>{"head.pool=mean", "memory[0].type=grc", "memory[0].cache_len=3"}}) {
    using Recompute = TrainOptions::Recompute;
    const auto weights_after = [&](Recompute recompute, int64_t accumulate, double dropout) {
      const auto model = make_model(assignments, dropout);
      FirstToken task(16);
      TrainOptions options = training_options(3);
      options.recompute = recompute;
      options.accumulate = accumulate;
      Trainer trainer(*model, task, options);
      for (int i = 0; i < 3; ++i) trainer.step();
      return model->parameters().find("backbone.layers.0.ffn.0.weight").detach().clone();
    };
    EXPECT_TRUE(at::equal(weights_after(Recompute::none, 1, 0.1), weights_after(Recompute::segment, 1, 0.1)));
    if (assignments != kRmt) continue;  // a cache that belongs to the model depends on the whole batch
    EXPECT_LE(test::difference(weights_after(Recompute::none, 1, 0.0), weights_after(Recompute::none, 4, 0.0)), 1e-5);
  }
}

TEST(ClassificationTraining, AResumedRunIsBitwiseTheUninterruptedOne) {
  const test::TemporaryFolder folder;
  struct Run {
    std::unique_ptr<models::Model> model = make_model(kRmt, 0.1);
    FirstToken task{16};
    std::unique_ptr<Trainer> trainer;
    explicit Run(const std::string& path)
        : trainer(std::make_unique<Trainer>(*model, task, training_options(6), path)) {}
  };
  Run whole(folder / "whole");
  whole.trainer->run(quiet());
  {
    Run first(folder / "cut");
    first.trainer->run(quiet([&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; }));
  }
  Run second(folder / "cut");
  ASSERT_TRUE(second.trainer->resume_latest());
  second.trainer->run(quiet());
  for (const auto& [name, tensor] : whole.model->parameters().named())
    EXPECT_TRUE(at::equal(tensor, second.model->parameters().find(name))) << name;
}

}  // namespace
}  // namespace mnemo::train
