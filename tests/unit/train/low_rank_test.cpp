#include "train/low_rank.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "weights/lora.h"

namespace mnemo::train {
namespace {

struct LowRankTest : testing::Test {
  LowRankTest() {
    base::write_file_atomic(folder / "text.txt", test::counting_text(120));
    corpus = test::small_corpus(folder / "text.txt");
    options.steps = 6;
    options.batch_size = 4;
    options.segments_per_step = 2;
    options.optimiser = base::Node::table({{"type", "adamw"}, {"lr", 0.01}});
    options.seed = 5;
    options.lora = LoraOptions{.rank = 2, .alpha = 6, .targets = {"*.attn.q.weight", "*.ffn.0.weight"}};
    options.only = {"memory.*"};
  }
  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
    std::map<std::string, at::Tensor> start;
  };
  Run make(const std::string& run_folder = {}) {
    Run run;
    run.model = test::small_model(corpus.tokenizer->size(),
                                  {base::Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}})});
    for (const auto& [name, tensor] : run.model->parameters().named()) run.start[name] = tensor.detach().clone();
    run.task = std::make_unique<tasks::LanguageModel>(corpus, test::task_options(options));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options, run_folder);
    return run;
  }
  static void finish(
      Trainer& trainer, const std::function<int()>& stop = [] { return 0; }) {
    RunHooks hooks;
    hooks.should_stop = stop;
    hooks.show_progress = false;
    trainer.run(hooks);
  }
  test::TemporaryFolder folder;
  data::Corpus corpus;
  TrainOptions options;
};

// The gradient of the factors is that of autograd through W0 + alpha/r B A.
TEST_F(LowRankTest, GradientsAreThoseOfTheProduct) {
  layers::ParameterSet set(3, at::kDouble);
  const at::Tensor weight = set.root().add("one.weight", {5, 4}, layers::normal(1.0));
  const LowRank lora(set.all(), {.rank = 2, .alpha = 3, .targets = {"*"}}, 7);
  ASSERT_EQ(lora.factors().size(), 2U);
  at::Tensor a = lora.factors()[0].tensor, b = lora.factors()[1].tensor;
  EXPECT_EQ(lora.factors()[1].name, "one.weight.lora_b");
  EXPECT_TRUE(at::equal(b, at::zeros({5, 2}, at::kDouble)));
  const at::Tensor start = weight.detach().clone();
  b.copy_(at::randn({5, 2}, at::kDouble));
  lora.merge();
  EXPECT_TRUE(at::allclose(weight, start + 1.5 * at::matmul(b, a), 1e-14, 1e-14));

  const at::Tensor x = at::randn({3, 4}, at::kDouble);
  const auto loss = [&](const at::Tensor& w) { return at::matmul(x, w.t()).tanh().sum(); };
  loss(weight).backward();
  lora.take_gradients();
  EXPECT_FALSE(weight.grad().defined());
  const at::Tensor own_a = a.detach().clone().set_requires_grad(true),
                   own_b = b.detach().clone().set_requires_grad(true);
  loss(start + 1.5 * at::matmul(own_b, own_a)).backward();
  EXPECT_TRUE(at::allclose(a.grad(), own_a.grad(), 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(b.grad(), own_b.grad(), 1e-12, 1e-12));
}

TEST_F(LowRankTest, ARankBeyondThatOfTheWeightIsRefused) {
  layers::ParameterSet set(3);
  set.root().add("w", {6, 4}, layers::normal(1.0));
  EXPECT_NO_THROW(LowRank(set.all(), {.rank = 4, .targets = {"*"}}, 7));
  test::expect_error<base::InputError>([&] { LowRank(set.all(), {.rank = 5, .targets = {"*"}}, 7); },
                                       {"train.lora.rank: expected at most 4", "'w' [6, 4], found 5"});
}

TEST_F(LowRankTest, TargetsMoveByTheirRankAndNothingElseButOnly) {
  Run run = make(folder / "run");
  finish(*run.trainer);
  int64_t moved = 0;
  for (const auto& [name, tensor] : run.model->parameters().named()) {
    const at::Tensor change = tensor.detach() - run.start[name];
    const bool target = name.ends_with("attn.q.weight") || name.ends_with("ffn.0.weight");
    if (!target && !name.starts_with("memory.")) {
      EXPECT_TRUE(at::equal(tensor, run.start[name])) << name;
      continue;
    }
    ++moved;
    EXPECT_GT(change.abs().max().item<double>(), 1e-5) << name;
    if (!target) continue;
    const at::Tensor values = at::linalg_svdvals(change.to(at::kDouble));
    EXPECT_LT(values[2].item<double>(), 1e-5 * values[0].item<double>()) << name << " has rank 2";
  }
  EXPECT_EQ(moved, 3);

  // The small file makes the trained model out of the one it started from.
  run.trainer->write_lora(folder / "lora.safetensors");
  auto file = weights::read_safetensors(folder / "lora.safetensors");
  EXPECT_EQ(file.tensors.size(), 5U);
  file.metadata[weights::kLoraRest] = weights::digest_of_rest(file, run.model->parameters().named());
  const auto again = make();
  weights::apply_lora(file, again.model->parameters().named(), "lora.safetensors");
  for (const auto& [name, tensor] : again.model->parameters().named())
    EXPECT_TRUE(at::allclose(tensor, run.model->parameters().find(name), 1e-6, 1e-7)) << name;

  // Another model is refused, also where it differs in what the training left alone.
  const auto other = make();
  {
    const at::NoGradGuard no_grad;
    at::Tensor(other.model->parameters().find("embed.weight")).flatten()[0] += 1e-3;
  }
  test::expect_error<base::InputError>(
      [&] { weights::apply_lora(file, other.model->parameters().named(), "lora.safetensors"); },
      {"lora.safetensors: expected the model that its training started from, found another", "'lora_rest'"});
}

TEST_F(LowRankTest, AResumedRunHasTheBitsOfTheUninterruptedOne) {
  Run whole = make(folder / "whole");
  finish(*whole.trainer);
  Run first = make(folder / "cut");
  finish(*first.trainer, [&] { return first.trainer->steps_done() == 3 ? SIGTERM : 0; });
  Run second = make(folder / "cut");
  ASSERT_TRUE(second.trainer->resume_latest());
  finish(*second.trainer);
  for (const auto& [name, tensor] : second.model->parameters().named())
    EXPECT_TRUE(at::equal(tensor, whole.model->parameters().find(name))) << name;

  // A run goes on from the weights it started from.
  Run other = make();
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : other.model->parameters().named()) at::Tensor(tensor).mul_(2);
  }
  const Trainer started(*other.model, *other.task, options);
  Trainer elsewhere(*other.model, *other.task, options);
  test::expect_error<base::InputError>(
      [&] { elsewhere.resume(weights::latest_checkpoint(folder / "cut")->path); },
      {"model.safetensors: 'backbone.layers.0.attn.q.weight' did not start from the weights"});
}

TEST_F(LowRankTest, MistakesAreNamed) {
  const auto refused = [&](std::initializer_list<std::string> parts) {
    test::expect_error<base::InputError>([&] { make(); }, parts);
  };
  options.lora->targets = {"*.query.weight"};
  refused({"train.lora.targets: no parameter matches the pattern \"*.query.weight\""});
  options.lora->targets = {"*.norm1.weight"};
  refused({"train.lora.targets: expected matrices, found 'backbone.layers.0.norm1.weight' [16]"});
  options.lora->targets = {"*.attn.q.weight"};
  options.only = {"backbone.*"};
  refused({"train.only: 'backbone.layers.0.attn.q.weight' is also in train.lora.targets"});
  options.lora.reset();
  options.only = {"nothing.*"};
  refused({"no parameter matches the pattern \"nothing.*\""});
  options.only.clear();
  options.lora = LoraOptions();
  options.ema_decay = 0.9;
  refused({"'lora': an average of the weights is not of rank r"});

  const auto broken = [&](weights::TensorFile file, std::initializer_list<std::string> parts) {
    const auto model = test::small_model(corpus.tokenizer->size(), {});
    test::expect_error<base::InputError>(
        [&] { weights::apply_lora(file, model->parameters().named(), "x.safetensors"); }, parts);
  };
  const at::Tensor a = at::zeros({2, 16}), b = at::zeros({16, 2});
  const std::string q = "backbone.layers.0.attn.q.weight";
  broken({{{q + ".lora_a", a}}, {}}, {"x.safetensors: expected the metadata 'lora_scale'"});
  broken({{{q + ".lora_a", a}}, {{"lora_scale", "two"}}}, {"'lora_scale'", "two"});
  broken({{{q + ".lora_a", a}}, {{"lora_scale", "2"}}}, {"x.safetensors", q + ".lora_b"});
  broken({{{q + ".lora_b", b}}, {{"lora_scale", "2"}}}, {"x.safetensors", q + ".lora_a"});
  broken({{{q + ".lora_a", at::zeros({2, 5})}, {q + ".lora_b", b}}, {{"lora_scale", "2"}}}, {"expected the shape"});
  broken({{{"head.none", a}}, {{"lora_scale", "2"}}}, {"the model has no parameter 'head.none'"});
}

}  // namespace
}  // namespace mnemo::train
