// Task memories by the command line: attached, asked, detached.
#include <torch/types.h>

#include "base/file_io.h"
#include "models/vision_model.h"
#include "tests/support/command_line.h"
#include "tests/support/numbers.h"
#include "weights/model_folder.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::test {
namespace {

models::ModelOptions options_of(const std::string& memory = "[]") {
  return base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 3}, "memory": )" + memory + "}", "test"));
}

class TaskCommands : public CommandLine {
 protected:
  TaskCommands() {
    const models::VisionModel model(options_of(), 1, at::kFloat);
    write_model(model, backbone_);
    const models::VisionModel other(options_of(), 2, at::kFloat);
    write_model(other, other_);
    for (const char* name : {"one", "two"}) {
      const models::VisionModel with(options_of(std::string(R"([{"type": "learnable_tokens", "tasks": [{"name": ")") + name +
                                                R"(", "num_classes": 2, "labels": ["yes", "no"]}]}])"), 1, at::kFloat);
      weights::TaskMemoryFile file = weights::take_task({with.options(), weights::model_tensors(with)}, name);
      file.backbone = weights::backbone_checksum(weights::model_tensors(model));
      weights::write_task_memory(task(name), file);
    }
  }

  static void write_model(const models::VisionModel& model, const std::string& folder) {
    weights::ModelFolder content;
    content.config = base::to_json(base::write_options(model.options())) + "\n";
    content.weights.tensors = weights::model_tensors(model);
    content.vocabulary["images.json"] = R"({"image_size": [8, 8], "labels": ["red", "green", "blue"]})";
    content.card = "A card\n";
    weights::write_model_folder(folder, content);
  }
  std::string task(const std::string& name) const { return folder_ / (name + ".task.safetensors"); }
  std::string bytes_of(const std::string& folder) const { return content(folder + "/model.safetensors") + content(folder + "/config.json"); }
  void expect_refused(const std::vector<std::string>& arguments, std::initializer_list<const char*> parts) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
    for (const char* part : parts) EXPECT_TRUE(holds(outcome.err, part)) << "no '" << part << "' in: " << outcome.err;
  }

  std::string backbone_ = folder_ / "backbone", other_ = folder_ / "other", joined_ = folder_ / "joined";
};

TEST_F(TaskCommands, DetachGivesBackTheFolderByteForByte) {
  const std::string before = bytes_of(backbone_);
  ASSERT_EQ(run({"attach", backbone_, task("one"), task("two"), "--extend", "--out", joined_}).status, 0);
  EXPECT_EQ(bytes_of(backbone_), before);
  const base::Node config = base::parse_json(content(joined_ + "/config.json"), "config");
  const base::Node& tasks = config.at("memory").items()[0].at("tasks");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks.items()[1].at("sees").items()[0].as_string(), "one");
  EXPECT_EQ(content(joined_ + "/README.md"), "A card\n");
  EXPECT_TRUE(base::path_exists(joined_ + "/images.json"));
  expect_refused({"detach", joined_, "one"}, {"'two' sees 'one'"});
  ASSERT_EQ(run({"detach", joined_, "two"}).status, 0);
  ASSERT_EQ(run({"detach", joined_, "one"}).status, 0);
  EXPECT_EQ(bytes_of(joined_), before);
}

TEST_F(TaskCommands, WhatDoesNotFitIsRefusedByName) {
  const std::string before = bytes_of(other_);
  expect_refused({"attach", other_, task("one")}, {"one.task.safetensors", "another backbone"});
  EXPECT_EQ(bytes_of(other_), before);
  expect_refused({"attach", backbone_, backbone_ + "/model.safetensors"}, {"mnemo-task/1"});
  expect_refused({"attach", backbone_, task("none")}, {"none.task.safetensors"});
  expect_refused({"attach", backbone_, task("one"), task("one")}, {"'one'", "--name"});
  expect_refused({"attach", backbone_, task("one"), "--extend", "--concatenate"}, {"--extend", "--concatenate"});
  expect_refused({"attach", backbone_, task("one"), task("two"), "--name", "x"}, {"--name"});
  expect_refused({"detach", backbone_, "one"}, {"no task", "one"});
  expect_refused({"attach", folder_.path(), task("one")}, {"config.json"});
}

}  // namespace
}  // namespace mnemo::test
