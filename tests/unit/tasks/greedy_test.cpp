#include "tasks/greedy.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "data/answers/task_file.h"
#include "models/model.h"
#include "tasks/algorithmic.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::tasks {
namespace {

using base::Node;

std::unique_ptr<models::Model> decoder(int64_t vocabulary, int64_t segment_size, const std::string& memory) {
  const Node node = base::parse_json(
      fmt::format(R"({{"segment_size": {}, "embedding": {{"vocab_size": {}}}, "memory": [{}],
      "backbone": {{"num_layers": 2, "dim": 8, "num_heads": 2, "ffn_dim": 16, "init_std": 0.6}}}})",
                  segment_size, vocabulary, memory),
      "model");
  return models::build(base::read_options<models::ModelOptions>(node), 3, at::kDouble);
}

/// The definition: for every symbol of the answer, the whole sample so far is run again, segment by segment.
at::Tensor naive(const core::Model& model, const data::SampleBatch& batch, int64_t segment_size) {
  const at::NoGradGuard no_grad;
  at::Tensor inputs = batch.inputs.clone(), found = at::full_like(inputs, -1);
  for (int64_t b = 0; b < inputs.size(0); ++b) {
    const int64_t length = batch.valid.defined() ? batch.valid[b].sum().item<int64_t>() : inputs.size(1);
    for (int64_t t = 0; t < length; ++t) {
      if (!batch.answer[b][t].item<bool>()) continue;
      core::State state = model.initial_state(1);
      at::Tensor hidden;
      for (int64_t at = 0; at <= t; at += segment_size) {
        core::Segment segment;
        segment.tokens = inputs.narrow(0, b, 1).narrow(1, at, std::min(segment_size, t + 1 - at));
        segment.part.ends = at + segment_size <= t + 1;
        core::StepResult step = model.forward(segment, state);
        state = std::move(step.state);
        hidden = step.hidden.select(1, segment.tokens.size(1) - 1);
      }
      const auto symbol = model.logits(hidden).argmax(-1).item<int64_t>();
      found[b][t] = symbol;
      if (t + 1 < length) inputs[b][t + 1] = symbol;
    }
  }
  return found;
}

TEST(Greedy, IsTheWholeSampleRunAgainForEverySymbol) {
  const data::AlgorithmicTask task({.task = "copy", .num_symbols = 4, .alphabet = 5}, 1);
  const data::SampleBatch batch = task.batch(data::Part::valid, 0, 6);
  for (const char* memory :
       {"", R"({"type": "segment_cache", "mem_len": 3})", R"({"type": "recurrent_tokens", "num_mem_tokens": 2})",
        R"({"type": "grc", "cache_len": 3, "lifetime": "sequence"})"}) {
    for (const int64_t segment_size : {1, 3, 5, 12}) {
      const auto model = decoder(task.vocabulary_size(), segment_size, memory);
      const at::Tensor found = greedy_predictions(*model, batch, segment_size);
      EXPECT_TRUE(at::equal(found, naive(*model, batch, segment_size))) << memory << " " << segment_size;
      EXPECT_TRUE(at::equal(found.ne(-1), batch.answer));
    }
  }
}

TEST(Greedy, SamplesOfDifferentLengthRunTogether) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "samples.tsv",
                          "input\ttarget\tanswer\n2 3 1 2 3\t3 1 2 3 4\t0 0 1 1 1\n4 1\t1 4\t0 1\n2 1 2 3 3 3 3\t1 2 3 "
                          "3 3 3 2\t0 1 1 0 0 1 1\n");
  const data::SampleBatch batch = data::read_task_file(folder / "samples.tsv").batch({0, 1, 2});
  for (const int64_t segment_size : {2, 4, 7}) {
    const auto model = decoder(6, segment_size, R"({"type": "segment_cache", "mem_len": 20})");
    EXPECT_TRUE(at::equal(greedy_predictions(*model, batch, segment_size), naive(*model, batch, segment_size)))
        << segment_size;
  }
}

/// Predicts the previous token plus one, modulo V: only correct if it reads its own predictions.
class Counting final : public core::Model {
 public:
  explicit Counting(int64_t vocabulary) : vocabulary_(vocabulary), input_(core::TokenInput{vocabulary, 2}) {}
  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    return {at::one_hot((segment.tokens + 1).remainder(vocabulary_), vocabulary_).to(at::kFloat), {}, state};
  }
  core::State initial_state(int64_t) const override { return {}; }
  void commit(const core::State&) override {}
  int64_t bptt_depth(const std::string&) const override { return 0; }
  at::Tensor logits(const at::Tensor& hidden) const override { return hidden; }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return at::zeros(targets.sizes(), hidden.options());
  }
  const layers::ParameterSet& parameters() const override { return parameters_; }
  const core::ModelInput& input() const override { return input_; }

 private:
  int64_t vocabulary_;
  core::ModelInput input_;
  layers::ParameterSet parameters_{0, at::kFloat};
};

TEST(Greedy, AccuracyIsOfTheModelsOwnSymbols) {
  const test::TemporaryFolder folder;
  // The first sample has one error with teacher forcing, after which the model's own symbols are wrong to the end; the
  // second is correct both ways, except for its padding; so is all of the third.
  base::write_file_atomic(folder / "valid.tsv",
                          "input\ttarget\tanswer\n3 5 6\t5 6 7\t1 1 1\n5 6 7\t6 7 0\t1 1 2\n1 2 3\t2 3 4\t1 1 1\n");
  base::write_file_atomic(folder / "train.tsv", "input\ttarget\tanswer\n3\t4\t1\n");
  data::TaskFileOptions options;
  options.train = folder / "train.tsv";
  options.valid = folder / "valid.tsv";
  const auto files = std::make_shared<data::TaskFiles>(options, false, 0);
  const Counting model(10);
  const auto greedy = Algorithmic(files, {.decoding = data::AnswerOptions::Decoding::greedy}, {})
                          .evaluate(model, data::Part::valid);
  EXPECT_EQ(greedy->at("accuracy"), 5.0 / 8);
  EXPECT_EQ(greedy->at("teacher_forced_accuracy"), 7.0 / 8);
  // The padding that the second answer includes counts in the whole result.
  EXPECT_EQ(greedy->at("result_accuracy"), 1.0 / 3);
  EXPECT_EQ(greedy->predictions, 8);
  const auto forced = Algorithmic(files, {.decoding = data::AnswerOptions::Decoding::teacher_forced}, {})
                          .evaluate(model, data::Part::valid);
  EXPECT_EQ(forced->at("accuracy"), 7.0 / 8);
  EXPECT_EQ(forced->at("result_accuracy"), 1.0 / 3);
  EXPECT_FALSE(Algorithmic(files, {}, {}).evaluate(model, data::Part::test).has_value());
  EXPECT_EQ(Algorithmic(files, {}, {.eval_samples = 1}).evaluate(model, data::Part::valid)->predictions, 3);
}

}  // namespace
}  // namespace mnemo::tasks
