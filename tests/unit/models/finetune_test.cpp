#include "models/finetune.h"

#include <set>

#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models {
namespace {

ModelOptions small(const std::string& more = "") {
  return base::read_options<ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 3})" +
          more + "}",
      "test"));
}

const std::vector<std::string> kLabels = {"a", "b", "c", "d"};

FinetunePlan plan(const std::string& options, const ModelOptions& model = small()) {
  base::Node node = base::parse_json(options, "test");
  node.set("model", "somewhere");
  return plan_finetuning(model, base::read_options<FinetuneOptions>(node), kLabels);
}

/// Names of the trainable parameters.
std::set<std::string> trained(const FinetunePlan& made) {
  base::check_options(made.options);
  const ImageModel model(made.options, 0, at::kFloat);
  train_only(model.parameters(), made.trained);
  std::set<std::string> names;
  for (const layers::Parameter& one : model.parameters().all()) {
    if (one.tensor.requires_grad()) names.insert(one.name);
  }
  return names;
}

using Names = std::set<std::string>;
const Names kHead = {"task.t.head.bias", "task.t.head.weight"};

Names with(Names names, const std::vector<std::string>& more) {
  names.insert(more.begin(), more.end());
  return names;
}

TEST(Finetune, EachRegimeTrainsItsOwnParameters) {
  EXPECT_EQ(trained(plan(R"({"regime": "head", "name": "t"})")), kHead);
  EXPECT_EQ(trained(plan(R"({"regime": "head_and_class_token", "name": "t"})")), with(kHead, {"task.t.cls_token"}));
  EXPECT_EQ(trained(plan(R"({"regime": "memory", "name": "t"})")),
            with(kHead, {"task.t.cls_token", "task.t.memory.0", "task.t.memory.1"}));
  EXPECT_EQ(trained(plan(R"({"regime": "masked_memory", "name": "t", "layers": [1]})")),
            with(kHead, {"task.t.class_token", "task.t.memory.1"}));
  EXPECT_EQ(trained(plan(R"({"regime": "masked_memory", "name": "t", "num_mem_tokens": 0})")),
            with(kHead, {"task.t.class_token"}));
  Names adapters = kHead;
  for (const char* layer : {"0", "1"}) {
    for (const char* adapter : {"adapter1", "adapter2"}) {
      for (const char* part : {"down.weight", "down.bias", "up.weight", "up.bias"})
        adapters.insert(fmt::format("backbone.layers.{}.{}.{}", layer, adapter, part));
    }
  }
  EXPECT_EQ(trained(plan(R"({"regime": "adapters", "name": "t", "bottleneck": 2})")), adapters);
  EXPECT_EQ(trained(plan(R"({"regime": "unmasked_memory", "name": "t", "layers": [0]})")),
            with(kHead, {"task.t.class_token", "task.t.memory.0"}));
  EXPECT_EQ(trained(plan(R"({"regime": "memory_and_adapters", "name": "t", "bottleneck": 2})")),
            with(adapters, {"task.t.cls_token", "task.t.memory.0", "task.t.memory.1"}));
  const FinetunePlan full = plan(R"({"regime": "full", "name": "t"})");
  EXPECT_FALSE(full.has_task_memory);
  EXPECT_EQ(full.answers, "base");
  EXPECT_EQ(trained(full).size(), ImageModel(small(), 0, at::kFloat).parameters().all().size());
  EXPECT_EQ(ImageModel(full.options, 0, at::kFloat).num_classes(), 4);
}

TEST(Finetune, TheTaskHasTheLabelsAndWhatItSees) {
  const FinetunePlan first = plan(R"({"regime": "masked_memory", "name": "t"})");
  const FinetunePlan second = plan(R"({"regime": "masked_memory", "name": "u", "sees": ["t"], "memory_norm": "after"})",
                                   first.options);
  const ImageModel model(second.options, 0, at::kFloat);
  ASSERT_EQ(model.tasks()->options().tasks.size(), 2U);
  const memory::TaskOptions& task = model.tasks()->options().tasks[1];
  EXPECT_EQ(task.labels, kLabels);
  EXPECT_EQ(task.sees, std::vector<std::string>{"t"});
  EXPECT_FALSE(model.tasks()->tasks().tasks[1].norm_memory);
  EXPECT_TRUE(model.tasks()->tasks().tasks[0].norm_memory);
  EXPECT_EQ(second.trained, std::vector<std::string>{"task.u.*"});
}

// The model's own adapters are part of the backbone that the task is trained for.
TEST(Finetune, AModelWithAdaptersOfItsOwnKeepsThem) {
  const ModelOptions model = small(R"(, "adapters": {"bottleneck": 3})");
  const FinetunePlan first = plan(R"({"regime": "head", "name": "t"})", model),
                     second = plan(R"({"regime": "masked_memory", "name": "u", "num_mem_tokens": 0})", first.options);
  EXPECT_EQ(trained(first), kHead);
  EXPECT_EQ(trained(second), (Names{"task.u.class_token", "task.u.head.bias", "task.u.head.weight"}));
  EXPECT_FALSE(ImageModel(second.options, 0, at::kFloat).tasks()->options().tasks[1].own_adapters);
  const FinetunePlan own = plan(R"({"regime": "adapters", "name": "t"})");
  EXPECT_TRUE(ImageModel(own.options, 0, at::kFloat).tasks()->options().tasks[0].own_adapters);
}

// If the task's own class token equals the backbone's, the result is as if there were no task.
TEST(Finetune, AClassTokenInPlaceOfTheBackbonesStandsThere) {
  const FinetunePlan made = plan(R"({"regime": "head_and_class_token", "name": "t"})");
  const ImageModel model(made.options, 0, at::kDouble), plain(small(), 0, at::kDouble);
  test::Numbers numbers(3);
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& one : model.parameters().all()) {
    at::Tensor(one.tensor).copy_(numbers.normal(one.tensor.sizes()) * 0.3);
    if (at::Tensor other = plain.parameters().find(one.name); other.defined()) other.copy_(one.tensor);
  }
  ASSERT_EQ(made.starts.size(), 1U);
  const at::Tensor pixels = numbers.normal({2, 3, 8, 8});
  const auto rows = [&](const ImageModel& one) {
    return one.forward({.tokens = {}, .rows = {}, .pixels = pixels}, one.initial_state(2)).hidden;
  };
  EXPECT_GT(test::difference(rows(model), rows(plain)), 1e-3);
  model.parameters().find(made.starts[0].first).copy_(model.parameters().find(made.starts[0].second).view({1, 1, -1}));
  EXPECT_LT(test::difference(rows(model), rows(plain)), 1e-12);
}

// Without a mask every row sees a task's class row and memory, so tasks that are joined change one another (the paper's
// last row of table 6); the masked ones do not.
TEST(Finetune, TasksWithoutAMaskInterfere) {
  for (const char* regime : {"unmasked_memory", "masked_memory"}) {
    const bool masked = std::string(regime) == "masked_memory";
    const std::string head = std::string(R"({"regime": ")") + regime + R"(", "num_mem_tokens": 3, "name": ")";
    const FinetunePlan one = plan(head + R"(t"})");
    FinetunePlan two = one;
    base::Node other = plan(head + R"(u"})").options.memory[0].table().at("tasks").items()[0];
    base::Node tasks = two.options.memory[0].table().at("tasks");
    tasks.push_back(other);
    two.options.memory[0].set("tasks", tasks);
    base::check_options(two.options);
    ASSERT_EQ(one.starts.size(), 1U);
    ImageModel alone(one.options, 0, at::kDouble), joined(two.options, 0, at::kDouble);
    const at::NoGradGuard no_grad;
    test::Numbers numbers(3);
    for (const layers::Parameter& parameter : joined.parameters().all()) {
      at::Tensor(parameter.tensor).copy_(numbers.normal(parameter.tensor.sizes()) * 0.3);
      if (at::Tensor same = alone.parameters().find(parameter.name); same.defined()) same.copy_(parameter.tensor);
    }
    const at::Tensor pixels = numbers.normal({2, 3, 8, 8});
    const auto logits = [&](ImageModel& model) {
      model.answer_for("t");
      return model.logits(model.forward({.tokens = {}, .rows = {}, .pixels = pixels}, model.initial_state(2)).hidden);
    };
    const double change = test::difference(logits(alone), logits(joined));
    if (masked) {
      EXPECT_EQ(change, 0.0);
    } else {
      EXPECT_GT(change, 1e-3);
    }
  }
}

TEST(Finetune, WhatMakesNoSenseIsRefused) {
  const auto refuse = [](const std::string& options, std::initializer_list<std::string> what,
                         const ModelOptions& model = small()) {
    test::expect_error<base::InputError>([&] { plan(options, model); }, what);
  };
  refuse(R"({"regime": "mem"})", {"regime", "mem"});
  refuse(R"({"regime": "head", "layers": [0]})", {"layers", "memory"});
  refuse(R"({"regime": "masked_memory", "propagation": "first"})", {"propagation", "memory"});
  refuse(R"({"regime": "memory", "sees": ["x"]})", {"sees", "masked_memory"});
  refuse(R"({"regime": "head", "num_mem_tokens": 7})", {"num_mem_tokens", "masked_memory", "found regime = \"head\""});
  refuse(R"({"regime": "adapters", "memory_norm": "after"})",
         {"memory_norm", "masked_memory", "found regime = \"adapters\""});
  refuse(R"({"regime": "memory", "class_token_position": "none"})",
         {"class_token_position", "masked_memory", "found regime = \"memory\""});
  refuse(R"({"regime": "unmasked_memory", "sees": ["x"]})", {"sees", "masked_memory"});
  refuse(R"({"regime": "unmasked_memory", "propagation": "first"})", {"propagation", "memory_and_adapters"});
  refuse(R"({"regime": "full", "bottleneck": 3})", {"bottleneck", "adapters", "found regime = \"full\""});
  refuse(R"({"regime": "adapters", "name": "t"})", {"already has adapters"},
         small(R"(, "adapters": {"bottleneck": 3})"));
  refuse(R"({"regime": "masked_memory", "sees": ["x"]})", {"'x'", "earlier"});
  refuse(R"({"regime": "masked_memory", "name": "a b"})", {"name", "letters"});
  const ModelOptions one = plan(R"({"regime": "masked_memory", "name": "t"})").options;
  refuse(R"({"regime": "memory", "name": "u"})", {"attached", "masked_memory"}, one);
  refuse(R"({"regime": "unmasked_memory", "name": "u"})", {"attached", "masked_memory"}, one);
  refuse(R"({"regime": "full", "name": "u"})", {"detach"}, one);
  refuse(R"({"regime": "masked_memory", "name": "t"})", {"'t'", "twice"}, one);
  const layers::ParameterSet parameters = ImageModel(small(), 0, at::kFloat).parameters();
  test::expect_error<base::InputError>([&] { train_only(parameters, {"task.*"}); }, {"task.*"});
}

TEST(Finetune, MessagesNameItsOwnKeys) {
  const auto refused = [](const std::string& options, const std::string& what) {
    test::expect_error<base::InputError>([&] { plan(options); }, {what});
  };
  refused(R"({"name": "a b"})", "'name': expected 1 to 64 letters");
  refused(R"({"layers": [0, 0]})", "'layers': expected ascending numbers");
}

}  // namespace
}  // namespace mnemo::models
