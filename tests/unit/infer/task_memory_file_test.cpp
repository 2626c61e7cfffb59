// Files of learnable-memory tasks: written, attached, taken out again.
#include <torch/types.h>

#include <algorithm>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/learnable_tasks.h"

namespace mnemo::infer {
namespace {

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
  extension.sees = {{"a", weights::task_checksum(one, "a")}};
  refuse(backbone, extension, {"extension of 'a'", "not attached"});
  weights::StoredParts wrong = backbone;
  weights::attach(wrong, task(backbone, "a", 7), "file");
  refuse(wrong, extension, {"another task 'a'"});
  weights::StoredParts two = one;
  weights::attach(two, extension, "file");
  test::expect_error<base::InputError>([&] { weights::detach(two, "a", "m"); }, {"'b' sees 'a'"});
  test::expect_error<base::InputError>([&] { weights::detach(two, "c", "m"); }, {"no task", "c"});
  // The tasks that b sees are part of its identity.
  weights::StoredParts apart = one;
  weights::attach(apart, extension, "file", {.name = {}, .sees = std::vector<std::string>{}});
  weights::TaskMemoryFile third = task(backbone, "c", 5);
  third.sees = {{"b", weights::task_checksum(two, "b")}};
  refuse(apart, third, {"another task 'b'"});
  weights::attach(two, third, "file");
  weights::TaskMemoryFile full = task(backbone, "f", 3);
  full.memory.attention = memory::TaskAttention::full;
  refuse(one, full, {"full", "masked"});
  weights::TaskMemoryFile renamed = task(backbone, "a", 4);
  weights::attach(one, renamed, "file", {.name = "again", .sees = {}});
  EXPECT_EQ(by_model(one).size(), 3U);
}

const std::string kAdapters = R"(, "adapters": {"bottleneck": 3})";
const std::string kAdapterTask =
    R"({"name": "t", "num_classes": 4, "num_mem_tokens": 0, "new_class_token": false, "own_adapters": true})";

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
         {"x.task", "has adapters", "its own"});
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
    change(other.options, std::get<backbones::VitOptions>(other.options.backbone.vision()));
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

}  // namespace
}  // namespace mnemo::infer
