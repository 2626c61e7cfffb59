#include "infer/task_classifier.h"

#include "backbones/vit_tasks.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "weights/load_into.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kDim = 24, kLayers = 3;

models::ModelOptions options_of(const std::string& memory = "[]", const std::string& more = "") {
  return base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [16, 16], "patch_size": 4, "dim": 24, "num_layers": 3, "num_heads": 3, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 5}, "memory": )" +
          memory + more + "}",
      "test"));
}

/// Parameters from N(0, 0.3), norms around 1, so that nothing is small initially.
void fill(const core::Model& model, uint64_t seed) {
  test::Numbers numbers(seed);
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& one : model.parameters().all()) {
    at::Tensor(one.tensor)
        .copy_(numbers.normal(one.tensor.sizes()) * 0.3 +
               (one.name.find("norm") != std::string::npos && one.name.ends_with("weight") ? 1.0 : 0.0));
  }
}

weights::StoredParts fresh_backbone(uint64_t seed = 1) {
  const models::Model model(options_of(), 0, at::kFloat);
  fill(model, seed);
  return {model.options(), weights::model_tensors(model)};
}

std::shared_ptr<models::Model> built(const weights::StoredParts& parts, at::ScalarType dtype = at::kFloat) {
  auto model = std::make_shared<models::Model>(parts.options, 0, dtype);
  weights::TensorFile file;
  file.tensors = parts.tensors;
  weights::load_model_tensors(file, *model, "test");
  return model;
}

/// A task with random values, in the form that fine-tuning produces.
weights::TaskMemoryFile task(const weights::StoredParts& backbone, const std::string& name, uint64_t seed,
                             const std::string& more = "") {
  auto options = options_of(R"([{"type": "learnable_tokens", "tasks": [{"name": ")" + name +
                            R"(", "num_classes": 4, "num_mem_tokens": )" + std::to_string(1 + seed % 4) + more +
                            "}]}]");
  const models::Model model(options, 0, at::kFloat);
  fill(model, 100 + seed);
  weights::StoredParts parts{model.options(), weights::model_tensors(model)};
  weights::TaskMemoryFile file = weights::take_task(parts, name);
  file.backbone = weights::backbone_checksum(backbone);
  return file;
}

at::Tensor pixels(int64_t batch = 2, uint64_t seed = 9) {
  return test::Numbers(seed).normal({batch, 3, 16, 16}).to(at::kFloat);
}

using Logits = std::map<std::string, at::Tensor>;

Logits as_map(const std::vector<models::TaskLogits>& all) {
  Logits map;
  for (const auto& [name, logits] : all) map[name] = logits.detach();
  return map;
}
Logits by_model(const weights::StoredParts& parts) {
  const at::NoGradGuard no_grad;
  return as_map(built(parts)->task_logits({.tokens = {}, .rows = {}, .pixels = pixels()}));
}
Logits packed(const weights::StoredParts& parts) { return as_map(TaskClassifier(built(parts))(pixels())); }

void expect_same_bits(const Logits& before, const Logits& after, const std::string& where) {
  for (const auto& [name, logits] : before) {
    ASSERT_TRUE(after.contains(name)) << where << ": " << name;
    EXPECT_TRUE(at::equal(logits, after.at(name)))
        << where << ": " << name << " moved by " << (logits - after.at(name)).abs().max().item<double>();
  }
}

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
                         : k == 6 ? R"(, "memory_norm": "before")"
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
  weights::attach(parts, task(fresh_backbone(), "b", 2, R"(, "memory_norm": "before")"), "file",
                  {.name = {}, .sees = std::vector<std::string>{"a"}});
  weights::attach(parts, task(fresh_backbone(), "c", 3, R"(, "layers": [2])"), "file");
  const auto model = built(parts, at::kDouble);
  core::BackboneInput input;
  input.pixels = pixels(3).to(at::kDouble);
  const core::TaskMemory tasks = model->tasks()->tasks();
  const core::TasksResult grouped = model->backbone().forward_tasks(tasks, input);
  const core::TasksResult dense = model->backbone().forward_tasks(tasks, input, core::TaskForm::dense);
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

TEST(TaskMemoryFile, IsReadAsWritten) {
  const test::TemporaryFolder folder;
  const weights::StoredParts backbone = fresh_backbone();
  weights::TaskMemoryFile file = task(backbone, "flowers", 3);
  file.memory.tasks.front().labels = {"rose", "tulip", "daisy", "aster"};
  file.sees = {{"birds", "00ff"}};
  file.about = "a test";
  const std::string path = folder / "flowers.task.safetensors";
  weights::write_task_memory(path, file);
  const weights::TaskMemoryFile read = weights::read_task_memory(path);
  EXPECT_EQ(base::write_options(read.memory), base::write_options(file.memory));
  EXPECT_EQ(read.backbone, file.backbone);
  EXPECT_EQ(read.sees, file.sees);
  EXPECT_EQ(read.about, file.about);
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const auto one = std::find_if(read.tensors.begin(), read.tensors.end(),
                                  [&, &wanted = name](const auto& other) { return other.first == wanted; });
    ASSERT_NE(one, read.tensors.end()) << name;
    EXPECT_TRUE(at::equal(one->second, tensor)) << name;
  }
}

TEST(TaskMemoryFile, HostileFilesAreRefusedByName) {
  const test::TemporaryFolder folder;
  const weights::StoredParts backbone = fresh_backbone();
  const weights::TaskMemoryFile good = task(backbone, "a", 3);
  const std::string path = folder / "bad.safetensors";
  const auto refused = [&](auto&& spoil, std::initializer_list<std::string> parts) {
    weights::write_task_memory(path, good);
    weights::TensorFile file = weights::read_safetensors(path);
    spoil(file);
    weights::write_safetensors(path, file.tensors, file.metadata);
    const std::string message = test::expect_error<base::InputError>([&] { weights::read_task_memory(path); }, parts);
    EXPECT_NE(message.find(path), std::string::npos) << message;
  };
  refused([](auto& file) { file.metadata.erase("format"); }, {"mnemo-task/2"});
  refused([](auto& file) { file.metadata["format"] = "mnemo-golden/1"; }, {"mnemo-golden/1"});
  refused([](auto& file) { file.metadata["format"] = "mnemo-task/1"; },
          {"\"mnemo-task/2\", found \"mnemo-task/1\"", "mnemo finetune --resume RUN"});
  refused(
      [](auto& file) {
        file.metadata["config"] = R"({"memory": {"tasks": [{"name": "a", "num_classes": 4}]}, "adapters": {}})";
      },
      {"config", "own_adapters"});
  refused([](auto& file) { file.metadata.erase("backbone"); }, {"'backbone'"});
  refused([](auto& file) { file.metadata["config"] = "{"; }, {"config"});
  refused([](auto& file) { file.metadata["config"] = R"({"memory": {"tasks": []}})"; }, {"one task"});
  refused(
      [](auto& file) { file.metadata["config"] = R"({"memory": {"tasks": [{"name": "../a", "num_classes": 4}]}})"; },
      {"letters"});
  refused([](auto& file) { file.metadata["sees"] = "[]"; }, {"sees"});
  refused([](auto& file) { file.tensors.emplace_back("backbone.class_token", at::zeros({3})); },
          {"backbone.class_token"});
  refused([](auto& file) { file.tensors.emplace_back("task.a.extra", at::zeros({3}, at::kLong)); }, {"task.a.extra"});
  refused(
      [](auto& file) {
        std::erase_if(file.tensors, [](const auto& one) { return one.first == "task.a.head.weight"; });
      },
      {"task.a.head.weight"});
  refused([](auto& file) { file.tensors.front().second.fill_(std::numeric_limits<float>::quiet_NaN()); }, {"rule 15"});
}

TEST(TaskMemoryFile, AttachRefusesWhatDoesNotFit) {
  const weights::StoredParts backbone = fresh_backbone(1), other = fresh_backbone(2);
  const auto refuse = [&](const weights::StoredParts& parts, const weights::TaskMemoryFile& file,
                          std::initializer_list<std::string> what, const weights::AttachOptions& options = {}) {
    weights::StoredParts copy = parts;
    test::expect_error<base::InputError>([&] { weights::attach(copy, file, "x.task", options); }, what);
  };
  refuse(other, task(backbone, "a", 1), {"x.task", "another backbone"});
  weights::StoredParts one = backbone;
  weights::attach(one, task(backbone, "a", 1), "file");
  refuse(one, task(backbone, "a", 2), {"'a'", "--name"});
  refuse(one, task(backbone, "b", 2), {"'zz'"}, {.name = {}, .sees = std::vector<std::string>{"zz"}});
  weights::TaskMemoryFile extension = task(backbone, "b", 2);
  extension.sees = {{"a", weights::task_checksum(one.tensors, "a")}};
  refuse(backbone, extension, {"extension of 'a'", "not attached"});
  weights::StoredParts wrong = backbone;
  weights::attach(wrong, task(backbone, "a", 7), "file");
  refuse(wrong, extension, {"another task 'a'"});
  weights::StoredParts two = one;
  weights::attach(two, extension, "file");
  test::expect_error<base::InputError>([&] { weights::detach(two, "a", "m"); }, {"'b' sees 'a'"});
  test::expect_error<base::InputError>([&] { weights::detach(two, "c", "m"); }, {"no task", "c"});
  weights::TaskMemoryFile full = task(backbone, "f", 3);
  full.memory.attention = memory::TaskAttention::full;
  refuse(one, full, {"full", "masked"});
  weights::TaskMemoryFile renamed = task(backbone, "a", 4);
  weights::attach(one, renamed, "file", {.name = "again", .sees = {}});
  EXPECT_EQ(by_model(one).size(), 3U);
}

/// A model with these options as parts, with random values.
weights::StoredParts parts_of(const models::ModelOptions& options, uint64_t seed = 1) {
  const models::Model model(options, 0, at::kFloat);
  fill(model, seed);
  return {model.options(), weights::model_tensors(model)};
}
std::string memory_of(const std::string& task, const std::string& attention = "masked") {
  return R"([{"type": "learnable_tokens", "attention": ")" + attention + R"(", "tasks": [)" + task + "]}]";
}
const std::string kAdapters = R"(, "adapters": {"bottleneck": 3})";
const std::string kAdapterTask =
    R"({"name": "t", "num_classes": 4, "num_mem_tokens": 0, "new_class_token": false, "own_adapters": true})";

/// A task extracted from such a model, trained for the backbone.
weights::TaskMemoryFile taken(const weights::StoredParts& backbone, const models::ModelOptions& options,
                              const std::string& name) {
  weights::TaskMemoryFile file = weights::take_task(parts_of(options, 7), name);
  file.backbone = weights::backbone_checksum(backbone);
  return file;
}

int64_t adapters_in(const weights::NamedTensors& tensors) {
  return std::count_if(tensors.begin(), tensors.end(),
                       [](const auto& one) { return one.first.find(".adapter") != std::string::npos; });
}

void expect_same_parts(const weights::StoredParts& found, const weights::StoredParts& expected) {
  EXPECT_EQ(base::write_options(found.options), base::write_options(expected.options));
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (size_t i = 0; i < found.tensors.size(); ++i) {
    EXPECT_EQ(found.tensors[i].first, expected.tensors[i].first);
    EXPECT_TRUE(at::equal(found.tensors[i].second, expected.tensors[i].second)) << found.tensors[i].first;
  }
}

// The model's own adapters are part of its backbone: no task brings, stores or removes them.
TEST(TaskMemoryFile, AdaptersOfTheModelsOwnStay) {
  const weights::StoredParts backbone = parts_of(options_of("[]", kAdapters));
  ASSERT_EQ(adapters_in(backbone.tensors), 8 * kLayers);
  weights::StoredParts joined = backbone;
  for (const char* name : {"a", "b"}) {
    const auto options = options_of(
        memory_of(fmt::format(R"({{"name": "{}", "num_classes": 4, "num_mem_tokens": 2}})", name)), kAdapters);
    const weights::TaskMemoryFile file = taken(backbone, options, name);
    EXPECT_EQ(adapters_in(file.tensors), 0);
    EXPECT_FALSE(file.adapters);
    weights::attach(joined, file, "x.task");
  }
  EXPECT_EQ(weights::backbone_checksum(joined), weights::backbone_checksum(backbone));
  EXPECT_EQ(by_model(joined).size(), 3U);
  expect_same_bits(by_model(backbone), by_model(joined), "attached");
  const auto refuse = [&](const weights::StoredParts& model, const weights::TaskMemoryFile& file,
                          std::initializer_list<std::string> parts) {
    weights::StoredParts copy = model;
    test::expect_error<base::InputError>([&] { weights::attach(copy, file, "x.task"); }, parts);
  };
  refuse(backbone, taken(backbone, options_of(memory_of(kAdapterTask, "full"), kAdapters), "t"),
         {"x.task", "brings adapters", "its own"});
  refuse(parts_of(options_of("[]", kAdapters), 2),
         taken(backbone, options_of(memory_of(R"({"name": "a", "num_classes": 4})"), kAdapters), "a"),
         {"x.task", "another backbone"});
  weights::detach(joined, "a", "m");
  weights::detach(joined, "b", "m");
  expect_same_parts(joined, backbone);
  // Different adapters make a different backbone.
  weights::StoredParts other = backbone;
  for (auto& [name, tensor] : other.tensors) {
    if (name == "backbone.layers.1.adapter2.up.bias") tensor = tensor + 1.0;
  }
  EXPECT_NE(weights::backbone_checksum(other), weights::backbone_checksum(backbone));
}

TEST(TaskMemoryFile, AdaptersOfATaskComeAndGoWithIt) {
  const test::TemporaryFolder folder;
  const weights::StoredParts backbone = fresh_backbone();
  const weights::TaskMemoryFile made = taken(backbone, options_of(memory_of(kAdapterTask, "full"), kAdapters), "t");
  EXPECT_EQ(adapters_in(made.tensors), 8 * kLayers);
  weights::write_task_memory(folder / "t.task", made);
  const weights::TaskMemoryFile file = weights::read_task_memory(folder / "t.task");
  weights::StoredParts joined = backbone;
  weights::attach(joined, file, "x.task", {.name = "called", .sees = {}});
  EXPECT_EQ(adapters_in(joined.tensors), 8 * kLayers);
  EXPECT_EQ(weights::backbone_checksum(joined), weights::backbone_checksum(backbone));
  EXPECT_EQ(by_model(joined).count("called"), 1U);
  weights::StoredParts copy = joined;
  test::expect_error<base::InputError>([&] { weights::attach(copy, file, "x.task"); },
                                       {"x.task", "adapters", "those of a task"});
  weights::detach(joined, "called", "m");
  expect_same_parts(joined, backbone);
}

// The values are the same, but what is computed from them is not.
TEST(TaskMemoryFile, OptionsOfTheBackboneAreInItsChecksum) {
  const weights::StoredParts backbone = fresh_backbone();
  const auto with = [&](auto&& change) {
    weights::StoredParts other = backbone;
    change(other.options, std::get<backbones::VitOptions>(other.options.backbone.vision));
    return other;
  };
  const weights::TaskMemoryFile file = task(backbone, "a", 1);
  for (weights::StoredParts other : {with([](auto&, auto&vit) { vit.num_heads = 4; }),
                                     with([](auto&, auto&vit) { vit.norm_eps = 1e-5; }), with([](auto&, auto&vit) {
                                       vit.image_size = {8, 32};
                                     }),
                                     with([](auto&all, auto&) { all.head.set("pool", "mean"); })}) {
    EXPECT_NE(weights::backbone_checksum(other), weights::backbone_checksum(backbone));
    test::expect_error<base::InputError>([&] { weights::attach(other, file, "x.task"); },
                                         {"x.task", "another backbone"});
  }
  // Options that only matter in training do not count.
  const weights::StoredParts same = with(
      [](auto&, auto& vit) { vit.dropout = vit.drop_path = 0.1, vit.init_std = 0.5; });
  EXPECT_EQ(weights::backbone_checksum(same), weights::backbone_checksum(backbone));
}

TEST(TaskMemoryFile, WhatDoesNotFitTheModelIsNamedAsInTheFile) {
  const weights::StoredParts backbone = fresh_backbone();
  const auto refuse = [&](auto&& spoil, std::initializer_list<std::string> parts) {
    weights::TaskMemoryFile file = task(backbone, "a", 1);
    spoil(file);
    weights::StoredParts copy = backbone;
    const std::string message = test::expect_error<base::InputError>(
        [&] { weights::attach(copy, file, "x.task", {.name = "b", .sees = {}}); }, parts);
    EXPECT_TRUE(message.starts_with("x.task: ")) << message;
  };
  refuse([](auto& file) { file.memory.tasks.front().layers = std::vector<int64_t>{0, 5}; }, {"layers 0 to 2, found 5"});
  refuse(
      [](auto& file) {
        file.memory.tasks.front().layers = std::vector<int64_t>{0, 1};
      },
      {"'task.a.memory.2' has no place"});
  refuse([](auto& file) { file.memory.tasks.front().num_mem_tokens = 9; },
         {"'task.a.memory.0'", "expected [9, 24], found [2, 24]"});
  refuse(
      [](auto& file) {
        file.memory.tasks.front().new_class_token = false, file.memory.tasks.front().num_mem_tokens = 0;
      },
      {"'task.a.class_token' has no place"});
  refuse(
      [](auto& file) { std::erase_if(file.tensors, [](const auto& one) { return one.first == "task.a.memory.1"; }); },
      {"expected tensor 'task.a.memory.1', found none"});
  refuse([](auto& file) { file.tensors.emplace_back("task.a.extra", at::zeros({2})); },
         {"'task.a.extra' has no place"});
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
        [&] { models::Model(options_of("[{\"type\": \"learnable_tokens\", " + memory + "}]"), 0, at::kFloat); }, what);
  };
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "new_class_token": false}])", {"'a'", "new_class_token"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2}, {"name": "a", "num_classes": 2}])", {"'a'", "twice"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "sees": ["b"]}])", {"'b'", "earlier"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "layers": [3]}])", {"layers 0 to 2", "3"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "layers": [1, 0]}])", {"layers", "ascending"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 1}])", {"'a'", "num_classes"});
  refuse(R"("tasks": [{"name": "base", "num_classes": 2}])", {"base"});
  refuse(R"("propagation": "first", "tasks": [{"name": "a", "num_classes": 2}])", {"pass every norm", "before"});
  refuse(R"("propagation": "first", "memory_norm": "before", "tasks": [{"name": "a", "num_classes": 2}])",
         {"propagation", "full"});
  refuse(
      R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2}, {"name": "b", "num_classes": 2, "sees": ["a"]}])",
      {"sees", "full"});
  refuse(
      R"("tasks": [{"name": "a", "num_classes": 2, "own_class_token": true, "new_class_token": false, "num_mem_tokens": 0}])",
      {"own_class_token"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "labels": ["x"]}])", {"labels", "2"});
  refuse(R"("tasks": [{"name": "a", "num_classes": 2, "own_adapters": true}])", {"own_adapters", "old rows"});
  refuse(R"("attention": "full", "tasks": [{"name": "a", "num_classes": 2, "own_adapters": true}])",
         {"adapters", "'a'", "found none"});
}

}  // namespace
}  // namespace mnemo::infer
