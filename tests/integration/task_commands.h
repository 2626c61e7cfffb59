#pragma once

#include <string>
#include <vector>

#include "bundle/model_folder.h"
#include "models/image_model.h"
#include "tests/support/command_line.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::test {

/// A small ViT.
inline models::ModelOptions options_of(const std::string& memory = "[]") {
  return base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 3}, "memory": )" +
          memory + "}",
      "test"));
}

/// A backbone, another one, and two tasks of the first.
class TaskCommands : public CommandLine {
 protected:
  TaskCommands() {
    const models::ImageModel model(options_of(), 1, at::kFloat);
    write_model(model, backbone_);
    const models::ImageModel other(options_of(), 2, at::kFloat);
    write_model(other, other_);
    for (const char* name : {"one", "two"}) {
      const models::ImageModel with(options_of(std::string(R"([{"type": "learnable_tokens", "tasks": [{"name": ")") +
                                               name + R"(", "num_classes": 2, "labels": ["yes", "no"]}]}])"),
                                    1, at::kFloat);
      weights::TaskMemoryFile file = weights::take_task({with.options(), weights::model_tensors(with)}, name);
      file.backbone = weights::backbone_checksum({model.options(), weights::model_tensors(model)});
      weights::write_task_memory(task(name), file);
    }
  }

  static void write_model(const models::ImageModel& model, const std::string& folder) {
    bundle::ModelFolder content;
    content.config = base::to_json(base::write_options(model.options())) + "\n";
    content.weights.tensors = weights::model_tensors(model);
    content.vocabulary["images.json"] = R"({"image_size": [8, 8]})";
    content.vocabulary["classes.txt"] = "red\ngreen\nblue\n";
    content.card = "A card\n";
    bundle::write_model_folder(folder, content);
  }
  std::string task(const std::string& name) const { return folder_ / (name + ".task.safetensors"); }
  std::string bytes_of(const std::string& folder) const {
    return content(folder + "/model.safetensors") + content(folder + "/config.json");
  }
  void expect_refused(const std::vector<std::string>& arguments, std::initializer_list<const char*> parts) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
    for (const char* part : parts) EXPECT_TRUE(holds(outcome.err, part)) << "no '" << part << "' in: " << outcome.err;
  }

  /// The backbone's answer for a picture.
  base::Node result_of(const std::string& picture) {
    return json(run({"classify", backbone_, picture, "--json"}).out).items()[0].at("tasks");
  }

  std::string backbone_ = folder_ / "backbone", other_ = folder_ / "other", joined_ = folder_ / "joined";
};

}  // namespace mnemo::test
