#include <fmt/format.h>

#include <memory>

#include "base/exit_status.h"
#include "base/output.h"
#include "bundle/task_memories.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace mnemo::cli {
namespace {

struct DetachArguments {
  std::string model, name;
  std::optional<std::string> out;
};

std::string summary_of(const bundle::AttachedTasks& made) {
  return fmt::format("{}: {} task{} beside its own head\n", made.folder, made.tasks.size(),
                     made.tasks.size() == 1 ? "" : "s");
}

int attach(const bundle::AttachOptions& options) {
  const bundle::AttachedTasks made = bundle::attach_tasks(options);
  std::string text;
  for (const bundle::AttachedTask& task : made.added) {
    text += fmt::format("{}: {} classes, {} memory tokens a layer, {} bytes of parameters\n", task.name,
                        task.num_classes, task.num_mem_tokens, task.bytes);
  }
  base::print(text + summary_of(made));
  return base::kDone;
}

int detach(const DetachArguments& arguments) {
  base::print(summary_of(bundle::detach_task(arguments.model, arguments.name, arguments.out)));
  return base::kDone;
}

}  // namespace

void add_attach(CLI::App& app) {
  auto arguments = std::make_shared<bundle::AttachOptions>();
  Command(app, "attach",
          "joins task memories (mnemo finetune) to a model of images, which keeps all earlier results bit for bit")
      .argument("MODEL", arguments->model, "the backbone's model folder, or a run's folder")
      .arguments("FILE", arguments->files, "task memories, in this order")
      .flag("--extend", arguments->extend,
            "each extends all that are attached before it: its class token sees theirs and their memory")
      .flag("--concatenate", arguments->concatenate,
            "none sees another; without any of these: each sees what it saw in training")
      .option("--sees", arguments->sees, "NAME", "an attached task that it extends; may be repeated")
      .option("--name", arguments->name, "NAME", "what the task is called in this model (as in its file)")
      .option("--out", arguments->out, "FOLDER", "where the joined model goes (into MODEL itself)")
      .footer(
          "mnemo attach models/vit clothing.task.safetensors digits.task.safetensors --concatenate\nmnemo classify "
          "models/vit picture.jpg")
      .action([arguments] { return attach(*arguments); });
}

void add_detach(CLI::App& app) {
  auto arguments = std::make_shared<DetachArguments>();
  Command(app, "detach", "takes a task out of a model again")
      .argument("MODEL", arguments->model, "a model folder, or a run's folder")
      .argument("NAME", arguments->name, "the task")
      .option("--out", arguments->out, "FOLDER", "where the model goes (into MODEL itself)")
      .action([arguments] { return detach(*arguments); });
}

}  // namespace mnemo::cli
