#include "infer/task_classifier.h"

#include <torch/types.h>

#include "backbones/vit_tasks.h"
#include "core/backbone.h"
#include "core/task_tokens.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/learnable_tasks.h"

namespace mnemo::infer {
namespace {

// Law 7: 16 tasks one by one, by extension, by concatenation and mixed; then removed again.
TEST(LearnableMemory, EarlierLogitsKeepTheirBits) {
  weights::StoredParts parts = fresh_backbone();
  std::vector<weights::StoredParts> history = {parts};
  const Logits alone = packed(parts);
  Logits model_before = by_model(parts), packed_before = alone;
  ASSERT_EQ(alone.size(), 1U);
  for (uint64_t k = 0; k < 16; ++k) {
    const std::string name = "t" + std::to_string(k);
    std::vector<std::string> sees;
    if (k % 3 == 1) sees = {"t0"};  // extension of one
    if (k % 3 == 2) {               // of all attached tasks
      for (uint64_t j = 0; j < k; ++j) sees.push_back("t" + std::to_string(j));
    }
    weights::attach(parts,
                    task(fresh_backbone(), name, k,
                         k == 5   ? R"(, "layers": [1, 2])"
                         : k == 6 ? R"(, "memory_norm": "after")"
                                  : ""),
                    "file", {.name = {}, .sees = sees});
    const Logits model_now = by_model(parts), packed_now = packed(parts);
    ASSERT_EQ(model_now.size(), k + 2);
    expect_same_bits(model_before, model_now, "model with " + name);
    expect_same_bits(packed_before, packed_now, "packed with " + name);
    for (const auto& [task, logits] : model_now)
      EXPECT_LT((logits - packed_now.at(task)).abs().max().item<double>(), 2e-4) << task;
    model_before = model_now, packed_before = packed_now;
    history.push_back(parts);
  }
  expect_same_bits(alone, packed_before, "packed, the backbone's own head");
  for (int64_t k = 15; k >= 0; --k) {
    weights::detach(parts, "t" + std::to_string(k), "model");
    expect_same_bits(by_model(parts), model_before, "model without t" + std::to_string(k));
    expect_same_bits(packed(parts), packed_before, "packed without t" + std::to_string(k));
    EXPECT_EQ(base::write_options(parts.options), base::write_options(history[static_cast<size_t>(k)].options));
  }
}

// A task in the middle is removed; those before and after it do not change.
TEST(LearnableMemory, DetachingOneLeavesTheOthers) {
  weights::StoredParts parts = fresh_backbone();
  for (const char* name : {"a", "b", "c"})
    weights::attach(parts, task(fresh_backbone(), name, static_cast<uint64_t>(name[0])), "file");
  const Logits model_before = by_model(parts), packed_before = packed(parts);
  weights::detach(parts, "b", "model");
  const Logits model_now = by_model(parts);
  EXPECT_FALSE(model_now.contains("b"));
  expect_same_bits(model_now, model_before, "model");
  expect_same_bits(packed(parts), packed_before, "packed");
}

TEST(LearnableMemory, ConcatenationHasNoOrder) {
  const auto joined = [](const std::vector<const char*>& names) {
    weights::StoredParts parts = fresh_backbone();
    for (const char* name : names)
      weights::attach(parts, task(fresh_backbone(), name, static_cast<uint64_t>(name[0])), "file");
    return parts;
  };
  const weights::StoredParts abc = joined({"a", "b", "c"}), cab = joined({"c", "a", "b"});
  expect_same_bits(by_model(abc), by_model(cab), "model");
  expect_same_bits(packed(abc), packed(cab), "packed");
}

// Extension works in one direction, and a task depends on what it sees.
TEST(LearnableMemory, ExtensionReadsWhatItSees) {
  weights::StoredParts apart = fresh_backbone(), together = apart;
  weights::attach(apart, task(fresh_backbone(), "a", 1), "file");
  weights::attach(together, task(fresh_backbone(), "a", 1), "file");
  weights::attach(apart, task(fresh_backbone(), "b", 2), "file");
  weights::attach(together, task(fresh_backbone(), "b", 2), "file",
                  {.name = {}, .sees = std::vector<std::string>{"a"}});
  const Logits one = by_model(apart), other = by_model(together);
  EXPECT_TRUE(at::equal(one.at("a"), other.at("a")));
  EXPECT_GT((one.at("b") - other.at("b")).abs().max().item<double>(), 1e-3);
}

TEST(LearnableMemory, GroupedIsDense) {
  weights::StoredParts parts = fresh_backbone();
  weights::attach(parts, task(fresh_backbone(), "a", 1), "file");
  weights::attach(parts, task(fresh_backbone(), "b", 2, R"(, "memory_norm": "after")"), "file",
                  {.name = {}, .sees = std::vector<std::string>{"a"}});
  weights::attach(parts, task(fresh_backbone(), "c", 3, R"(, "layers": [2])"), "file");
  const auto model = built(parts, at::kDouble);
  core::BackboneInput input;
  input.pixels = pixels(3).to(at::kDouble);
  const core::TaskMemory tasks = model->tasks()->tasks();
  const core::TasksResult grouped = model->task_backbone()->forward_tasks(tasks, input);
  const core::TasksResult dense = model->task_backbone()->forward_tasks(tasks, input, core::TaskForm::dense);
  EXPECT_LT(test::difference(grouped.hidden, dense.hidden), 1e-12);
  for (size_t k = 0; k < 3; ++k) EXPECT_LT(test::difference(grouped.tasks[k], dense.tasks[k]), 1e-12) << k;
}

// Each image on its own, and the packed form of a batch.
TEST(LearnableMemory, ABatchIsItsImages) {
  weights::StoredParts parts = fresh_backbone();
  weights::attach(parts, task(fresh_backbone(), "a", 1), "file");
  const TaskClassifier classifier(built(parts));
  ASSERT_TRUE(classifier.is_packed());
  const Logits all = as_map(classifier(pixels(3)));
  for (int64_t i = 0; i < 3; ++i) {
    for (const auto& [name, logits] : as_map(classifier(pixels(3).narrow(0, i, 1)))) {
      EXPECT_LT((logits.squeeze(0) - all.at(name)[i]).abs().max().item<double>(), 1e-4) << name;
    }
  }
}

TEST(LearnableMemory, AHeadAloneReadsTheOldClassToken) {
  weights::StoredParts parts = fresh_backbone();
  weights::TaskMemoryFile file = task(fresh_backbone(), "a", 3);
  file.memory.tasks.front().new_class_token = false;
  file.memory.tasks.front().num_mem_tokens = 0;
  std::erase_if(file.tensors, [](const auto& one) { return one.first.find(".head.") == std::string::npos; });
  weights::attach(parts, file, "file");
  const Logits logits = by_model(parts);
  const auto model = built(parts);
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = model->forward({.tokens = {}, .rows = {}, .pixels = pixels()}, model->initial_state(2))
                                .hidden;
  EXPECT_TRUE(at::equal(logits.at("a"), model->tasks()->head(0)(hidden).squeeze(1)));
  EXPECT_LT((packed(parts).at("a") - logits.at("a")).abs().max().item<double>(), 1e-5);
}

TEST(LearnableMemory, ModelAnswersForTheTaskItIsAskedFor) {
  weights::StoredParts parts = fresh_backbone();
  weights::attach(parts, task(fresh_backbone(), "a", 1), "file");
  const auto model = built(parts);
  const at::NoGradGuard no_grad;
  const auto answer = [&] {
    const core::StepResult step = model->forward({.tokens = {}, .rows = {}, .pixels = pixels()},
                                                 model->initial_state(2));
    return model->logits(step.hidden).squeeze(1);
  };
  const Logits all = by_model(parts);
  EXPECT_TRUE(at::equal(answer(), all.at("base")));
  model->answer_for("a");
  EXPECT_EQ(model->num_classes(), 4);
  EXPECT_TRUE(at::equal(answer(), all.at("a")));
  test::expect_error<base::InputError>([&] { model->answer_for("aa"); }, {"aa", "did you mean 'a'"});
}

// A checkpoint such as DINO's: hidden states, and the tasks that are added to it.
TEST(LearnableMemory, ABackboneMayHaveNoHeadOfItsOwn) {
  auto options = options_of();
  options.head.set("num_classes", 0);
  const weights::StoredParts backbone = parts_of(options);
  for (const auto& [name, tensor] : backbone.tensors) EXPECT_FALSE(name.starts_with("head.")) << name;
  EXPECT_TRUE(by_model(backbone).empty());
  const auto model = built(backbone);
  test::expect_error<base::InputError>(
      [&] {
        model->logits(at::zeros({1, 1, kDim}));
      },
      {"it has no head", "mnemo finetune"});
  auto with_task = options_of(memory_of(R"({"name": "a", "num_classes": 4, "num_mem_tokens": 2})"));
  with_task.head.set("num_classes", 0);
  weights::StoredParts joined = backbone;
  weights::attach(joined, taken(backbone, with_task, "a"), "x.task");
  for (const Logits& logits : std::vector<Logits>{by_model(joined), packed(joined)}) {
    ASSERT_EQ(logits.size(), 1U);
    EXPECT_EQ(logits.at("a").sizes(), at::IntArrayRef({2, 4}));
  }
}

TEST(LearnableMemory, OptionsThatMakeNoSenseAreRefused) {
  const auto refuse = [](const std::string& memory, std::initializer_list<std::string> what) {
    test::expect_error<base::InputError>(
        [&] { models::ImageModel(options_of("[{\"type\": \"learnable_tokens\", " + memory + "}]"), 0, at::kFloat); },
        what);
  };
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "new_class_token": false}])", {"'a'", "new_class_token"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2}, {"name": "a", "num_classes": 2}])", {"'a'", "twice"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "sees": ["b"]}])", {"'b'", "earlier"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "layers": [3]}])", {"layers 0 to 2", "3"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "layers": [1, 0]}])", {"layers", "ascending"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 1}])", {"'a'", "num_classes"});
  refuse(R"("tasks": [{"name": "base", "num_classes": 2}])", {"base"});
  refuse(R"("propagation": "first", "memory_norm": "after", "tasks": [{"name": "a", "num_classes": 2}])",
         {"pass every norm", "before"});
  refuse(R"("propagation": "first", "tasks": [{"name": "a", "num_classes": 2}])", {"propagation", "full"});
  refuse(
      R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2}, {"name": "b", "num_classes": 2, "sees": ["a"]}])",
      {"sees", "full"});
  refuse(
      R"("tasks": [{"name": "a", "num_classes": 2, "own_class_token": true, "new_class_token": false, "num_mem_tokens": 0}])",
      {"own_class_token"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "labels": ["x"]}])", {"labels", "2"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "own_adapters": true}])", {"own_adapters", "existing rows"});
  refuse(R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2, "own_adapters": true}])",
         {"adapters", "'a'", "found none"});
  refuse(
      R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2, "own_adapters": true}, {"name": "b", "num_classes": 2, "own_adapters": true}])",
      {"tasks", "2 tasks have adapters"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2}]}, {"type": "grc")", {"learnable_tokens", "only memory", "2"});
}

}  // namespace
}  // namespace mnemo::infer
