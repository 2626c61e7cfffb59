// Training on several ranks, as threads of this process: each step is that of one process with the whole batch.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/configurations.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"
#include "train/optimiser_shards.h"
#include "train/trainer.h"
#include "weights/checkpoint.h"
#include "weights/model_tensors.h"

namespace mnemo::train {
namespace {

using base::Node;

struct RankCase {
  std::string name;
  std::vector<Node> memory;
  int64_t accumulate = 1, segments = 3;
  BpttForm bptt = BpttForm::sliding;
  TrainOptions::Recompute recompute = TrainOptions::Recompute::none;
  bool shard = false;
  int64_t replay = 0;
  std::optional<Node> attention = {};
  bool bf16 = false;
};

std::ostream& operator<<(std::ostream& stream, const RankCase& one) { return stream << one.name; }

std::vector<RankCase> rank_cases() {
  const Node cache = Node::table({{"type", "segment_cache"}, {"mem_len", 12}}),
             grc = Node::table({{"type", "grc"}, {"cache_len", 4}}),
             own = Node::table({{"type", "grc"}, {"cache_len", 4}, {"lifetime", "sequence"}}),
             rmt = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", "full"}}),
             rmt1 = Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 1}}),
             compressive = Node::table(
                 {{"type", "compressive"}, {"mem_len", 5}, {"compressed_len", 3}, {"compression_rate", 2}}),
             abc = Node::table({{"type", "abc"}, {"num_slots", 3}});
  std::vector<RankCase> cases = {
      {"none", {}},
      {"segment_cache", {cache}},
      {"rmt_full_bptt", {rmt}},
      {"rmt_depth_1_recompute", {rmt1, cache}, 1, 3, BpttForm::sliding, TrainOptions::Recompute::segment},
      {"rmt_replay", {rmt, cache}, 2, 1, BpttForm::sliding, TrainOptions::Recompute::none, false, 2},
      {"compressive", {compressive}},
      {"compressive_accumulate", {compressive}, 2},
      {"grc_sequence", {own}},
      {"grc_model", {grc}, 1, 1},
      {"grc_model_segments", {grc}},
      {"grc_model_chunked", {grc}, 1, 3, BpttForm::chunked},
      {"grc_model_accumulate", {grc}, 2, 1},
      {"segment_cache_accumulate", {cache}, 2},
      {.name = "abc", .memory = {}, .attention = abc},
      {"sharded", {cache}, 1, 3, BpttForm::sliding, TrainOptions::Recompute::none, true},
      {"sharded_grc_model", {grc}, 2, 1, BpttForm::sliding, TrainOptions::Recompute::none, true}};
  for (const Node& memory : test::small_memories())
    cases.push_back({"each_" + memory.at("type").as_string(), {memory}});
  return cases;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< parameters and per-model state
  double held_out = 0;
};

class RankTraining : public ::testing::TestWithParam<RankCase> {
 protected:
  RankTraining() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
  }
  void SetUp() override {
    if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  }

  TrainOptions options_of(const RankCase& one) const {
    TrainOptions options;
    options.steps = 5;
    options.batch_size = 8;
    options.segments_per_step = one.segments;
    options.accumulate = one.accumulate;
    options.bptt = one.bptt;
    options.replay = one.replay;
    options.recompute = one.recompute;
    options.shard_optimiser = one.shard;
    if (one.bf16) options.reduce_precision = TrainOptions::ReducePrecision::bf16;
    options.optimiser = Node::table({{"type", "adamw"}, {"lr", 0.01}});
    options.clip_norm = 0.5;
    options.ema_decay = 0.9;
    options.tensorboard = false;
    return options;
  }

  Result train(const RankCase& one, at::ScalarType dtype, const std::shared_ptr<distributed::Group>& group) {
    const TrainOptions options = options_of(one);
    std::unique_lock lock(mutex_);
    const auto model = test::small_model(corpus_.tokenizer->size(), one.memory, 8, 0.0, dtype, one.attention);
    tasks::LanguageModel task(corpus_, test::task_options(options));
    Trainer trainer(*model, task, options, {}, {}, group);
    lock.unlock();
    Result result;
    for (int64_t step = 0; step < options.steps; ++step) {
      const StepOutcome outcome = trainer.step();
      result.losses.push_back(outcome.loss);
      result.norms.push_back(outcome.gradient_norm);
    }
    for (const auto& [name, tensor] : weights::model_tensors(*model)) result.tensors.emplace_back(name, tensor.clone());
    return result;
  }

  static void expect_near(const Result& one, const Result& other, double tolerance) {
    for (size_t step = 0; step < one.losses.size(); ++step) {
      EXPECT_NEAR(one.losses[step], other.losses[step], tolerance * one.losses[step]) << "step " << step;
      EXPECT_NEAR(one.norms[step], other.norms[step], tolerance * one.norms[step]) << "step " << step;
    }
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (size_t i = 0; i < one.tensors.size(); ++i) {
      const at::Tensor expected = one.tensors[i].second, found = other.tensors[i].second;
      const double scale = expected.abs().max().item<double>() + 1e-3;
      EXPECT_LE((expected - found).abs().max().item<double>(), tolerance * scale) << one.tensors[i].first;
    }
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
  std::mutex mutex_;
};

TEST_P(RankTraining, EqualsOneProcessInFloat64) {
  const Result alone = train(GetParam(), at::kDouble, nullptr);
  for (const int64_t size : {2, 4}) {
    std::vector<Result> ranks(static_cast<size_t>(size));
    test::on_thread_ranks(size, [&](const std::shared_ptr<distributed::Group>& group) {
      ranks[static_cast<size_t>(group->rank())] = train(GetParam(), at::kDouble, group);
    });
    SCOPED_TRACE(size);
    expect_near(alone, ranks[0], 1e-12);
    for (const Result& other : ranks) {
      EXPECT_EQ(other.losses, ranks[0].losses);
      for (size_t i = 0; i < other.tensors.size(); ++i)
        EXPECT_TRUE(at::equal(other.tensors[i].second, ranks[0].tensors[i].second)) << other.tensors[i].first;
    }
  }
}

TEST_P(RankTraining, EqualsOneProcessInFloat32) {
  const Result alone = train(GetParam(), at::kFloat, nullptr);
  Result rank;
  test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
    Result own = train(GetParam(), at::kFloat, group);
    if (group->rank() == 0) rank = std::move(own);
  });
  for (size_t step = 0; step < alone.losses.size(); ++step)
    EXPECT_NEAR(alone.losses[step], rank.losses[step], 1e-6 * alone.losses[step]) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(Memories, RankTraining, ::testing::ValuesIn(rank_cases()),
                         [](const auto& info) { return info.param.name; });

using RankTrainingErrors = RankTraining;
INSTANTIATE_TEST_SUITE_P(
    One, RankTrainingErrors,
    ::testing::Values(RankCase{"segment_cache", {Node::table({{"type", "segment_cache"}, {"mem_len", 4}})}},
                      RankCase{"sharded", {}, 1, 3, BpttForm::sliding, TrainOptions::Recompute::none, true}),
    [](const auto& info) { return info.param.name; });

TEST_P(RankTrainingErrors, ABatchThatDoesNotDivideNamesTheNearest) {
  test::expect_error<base::InputError>(
      [&] {
        test::on_thread_ranks(
            3, [&](const std::shared_ptr<distributed::Group>& group) { train(GetParam(), at::kFloat, group); });
      },
      {"train.batch_size", "multiple of 3", "6 or 9", "found 8"});
}

/// Gradients that travel as bfloat16 are those of float32, rounded.
TEST_P(RankTrainingErrors, Bf16RoundsWhatTravels) {
  std::array<Result, 2> rank;
  for (const bool bf16 : {false, true}) {
    RankCase one = GetParam();
    one.bf16 = bf16;
    test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
      Result own = train(one, at::kFloat, group);
      if (group->rank() == 0) rank[bf16 ? 1 : 0] = std::move(own);
    });
  }
  EXPECT_EQ(rank[0].losses[0], rank[1].losses[0]);
  EXPECT_NE(rank[0].norms[0], rank[1].norms[0]);
  EXPECT_NEAR(rank[0].norms[0], rank[1].norms[0], 0.01 * rank[0].norms[0]);
  for (size_t step = 0; step < rank[0].losses.size(); ++step)
    EXPECT_NEAR(rank[0].losses[step], rank[1].losses[step], 0.01 * rank[0].losses[step]) << step;
}

/// A parameter that only one rank has changed is found at the next checkpoint, by name, before anything is written.
TEST_P(RankTrainingErrors, ADifferenceBetweenRanksNamesTheParameter) {
  if (GetParam().shard) GTEST_SKIP() << "each step hands the parameters round";
  const std::string parameter = test::small_model(corpus_.tokenizer->size(), {})->parameters().all().back().name;
  TrainOptions options = options_of(GetParam());
  options.steps = 3;
  test::expect_error<base::InputError>(
      [&] {
        test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
          std::unique_lock lock(mutex_);
          const auto model = test::small_model(corpus_.tokenizer->size(), GetParam().memory);
          tasks::LanguageModel task(corpus_, test::task_options(options));
          Trainer trainer(*model, task, options, folder_ / "run", {}, group);
          lock.unlock();
          RunHooks hooks;
          hooks.show_progress = false;
          hooks.stop = [&] {
            const at::NoGradGuard no_grad;
            if (group->rank() == 1) model->parameters().find(parameter)[0] += 1e-6;
            return 0;
          };
          trainer.run(hooks);
        });
      },
      {"training: step 3: the parameter '" + parameter + "' of rank 1", "drifted apart"});
  EXPECT_FALSE(weights::latest_checkpoint(folder_ / "run"));
}

/// A checkpoint holds all ranks' rows: it goes on alike on any number of ranks.
TEST_P(RankTrainingErrors, CheckpointsLoadOnAnyNumberOfRanks) {
  TrainOptions options = options_of(GetParam());
  RunHooks hooks;
  hooks.show_progress = false;
  hooks.stop = [] { return 0; };
  const auto train_to = [&](int64_t steps, int64_t size, const std::string& run) {
    TrainOptions now = options;
    now.steps = steps;
    const auto work = [&](const std::shared_ptr<distributed::Group>& group) {
      std::unique_lock lock(mutex_);
      const auto model = test::small_model(corpus_.tokenizer->size(), GetParam().memory, 8, 0.0, at::kDouble);
      tasks::LanguageModel task(corpus_, test::task_options(now));
      Trainer trainer(*model, task, now, run, {}, group);
      trainer.resume_latest();
      lock.unlock();
      trainer.run(hooks);
    };
    if (size == 1) {
      work(nullptr);
    } else {
      test::on_thread_ranks(size, work);
    }
  };
  train_to(6, 1, folder_ / "alone");
  train_to(2, 2, folder_ / "ranks");
  train_to(4, 1, folder_ / "ranks");
  train_to(6, 4, folder_ / "ranks");
  const weights::CheckpointReader one(folder_ / "alone/step-00000006"), other(folder_ / "ranks/step-00000006");
  for (const char* file : {"model.safetensors", "optimiser.safetensors", "state.safetensors", "average.safetensors"}) {
    const auto expected = one.tensors(file), found = other.tensors(file);
    ASSERT_EQ(expected.tensors.size(), found.tensors.size()) << file;
    for (const auto& [name, tensor] : expected.tensors) {
      const at::Tensor same = found.at(name, file);
      ASSERT_EQ(tensor.sizes(), same.sizes()) << name;
      EXPECT_LE((tensor.to(at::kDouble) - same.to(at::kDouble)).abs().max().item<double>(), 1e-11) << file << name;
    }
  }
  EXPECT_EQ(base::read_file(folder_ / "alone/step-00000006/data.safetensors"),
            base::read_file(folder_ / "ranks/step-00000006/data.safetensors"));
}

/// A rank has its part of the state of every parameter, and the parts together are the parameters, each once.
TEST(OptimiserShards, PartsAreEqualAndMakeTheWhole) {
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  constexpr int64_t kSize = 3;
  std::vector<int64_t> numbers(kSize);
  std::mutex mutex;
  test::on_thread_ranks(kSize, [&](const std::shared_ptr<distributed::Group>& group) {
    std::unique_lock lock(mutex);
    layers::ParameterSet set;
    const layers::Scope root = set.root();
    root.add("table", {100, 7}, layers::constant(1));
    root.add("none", {3}, layers::constant(2));
    root.add("bias", {65}, layers::constant(3), layers::ParameterKind::bias);
    lock.unlock();
    const double rank = static_cast<double>(group->rank());
    for (const layers::Parameter& parameter : set.all()) {
      if (parameter.name != "none") parameter.tensor.mutable_grad() = at::ones_like(parameter.tensor);
    }
    OptimiserShards shards(*group, set);
    shards.take_gradients();
    for (const layers::Parameter& part : shards.own()) {
      numbers[static_cast<size_t>(group->rank())] += part.tensor.numel();
      EXPECT_EQ(part.tensor.grad().defined(), part.name != "none");
      EXPECT_EQ(part.tensor.grad().defined() ? part.tensor.grad().numel() : part.tensor.numel(), part.tensor.numel());
      at::Tensor(part.tensor).fill_(rank);
    }
    shards.exchange();
    // Every number is that of the rank that has it: the first parameters belong to the first ranks.
    const at::Tensor table = set.find("table").detach().view({-1});
    EXPECT_TRUE(at::equal(table, std::get<0>(table.sort())));
    EXPECT_EQ(table[0].item<double>(), 0);
    EXPECT_EQ(set.find("bias").min().item<double>(), 2);

    weights::NamedTensors state = {{"steps", at::zeros({3}, at::kLong)}};
    for (const layers::Parameter& part : shards.own()) state.emplace_back("exp_avg." + part.name, part.tensor.clone());
    const weights::NamedTensors whole = shards.gathered(state);
    ASSERT_EQ(whole.size(), state.size());
    EXPECT_TRUE(at::equal(whole[1].second, set.find("table")));
    for (auto& [name, tensor] : state) tensor.zero_();
    shards.take(whole, state);
    for (size_t i = 0; i < shards.own().size(); ++i)
      EXPECT_TRUE(at::equal(state[i + 1].second, shards.own()[i].tensor)) << state[i + 1].first;
  });
  EXPECT_EQ(numbers[0] + numbers[1] + numbers[2], 768);
  for (const int64_t count : numbers) EXPECT_NEAR(count, 256, 64);
}

}  // namespace
}  // namespace mnemo::train
