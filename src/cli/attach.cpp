#include <fmt/format.h>

#include <memory>

#include "base/exit_status.h"
#include "base/output.h"
#include "base/text_format.h"
#include "bundle/task_memories.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace mnemo::cli {
namespace {

struct AttachArguments {
  bundle::AttachOptions attach;
  bool json = false;
};

struct DetachArguments {
  std::string model, name;
  std::optional<std::string> out;
  bool json = false;
};

std::string summary_of(const bundle::AttachedTasks& made) {
  return fmt::format("{}: {} {} its own head\n", made.folder,
                     base::counted(static_cast<int64_t>(made.tasks.size()), "task"),
                     made.own_head ? "beside" : "in place of");
}

base::Node tasks_node(const bundle::AttachedTasks& made) {
  base::Node added = base::Node::array(), tasks = base::Node::array();
  for (const bundle::AttachedTask& task : made.added) {
    added.push_back(base::Node::table({{"name", task.name},
                                       {"num_classes", task.num_classes},
                                       {"num_mem_tokens", task.num_mem_tokens},
                                       {"bytes", task.bytes}}));
  }
  for (const std::string& name : made.tasks) tasks.push_back(name);
  return base::Node::table({{"model", made.folder}, {"added", added}, {"tasks", tasks}});
}

int attach(const AttachArguments& arguments) {
  const bundle::AttachedTasks made = bundle::attach_tasks(arguments.attach);
  if (arguments.json) {
    base::print_json(tasks_node(made));
    return base::kDone;
  }
  std::string text;
  for (const bundle::AttachedTask& task : made.added) {
    text += fmt::format("{}: {} classes, {} a layer, {} bytes of parameters\n", task.name, task.num_classes,
                        base::counted(task.num_mem_tokens, "memory token"), task.bytes);
  }
  base::print(text + summary_of(made));
  return base::kDone;
}

int detach(const DetachArguments& arguments) {
  const bundle::AttachedTasks made = bundle::detach_task(arguments.model, arguments.name, arguments.out);
  if (arguments.json) {
    base::print_json(tasks_node(made));
  } else {
    base::print(summary_of(made));
  }
  return base::kDone;
}

}  // namespace

void add_attach(CLI::App& app) {
  auto options = std::make_shared<AttachArguments>();
  bundle::AttachOptions* arguments = &options->attach;
  Command(app, "attach",
          "attach tasks trained with `mnemo finetune` to an image model; masked tasks do not change its results")
      .argument("MODEL", arguments->model, "model folder or run folder of the image model")
      .arguments("FILE", arguments->files, "task files, attached in this order")
      .flag("--extend", arguments->extend,
            "each task sees the class tokens and memories of all tasks attached before it that have a class token")
      .flag("--concatenate", arguments->concatenate,
            "no task sees another (default: each sees what it saw in training)")
      .option("--sees", arguments->sees, "NAME", "let the new task see this attached task; may be repeated")
      .option("--name", arguments->name, "NAME", "name of the task in this model (default: the name in its file)")
      .option("--out", arguments->out, "FOLDER", "folder for the resulting model (default: change MODEL in place)")
      .flag("--json", options->json, "print JSON")
      .footer(
          "mnemo attach models/vit clothing.task.safetensors digits.task.safetensors --concatenate\nmnemo classify "
          "models/vit picture.jpg")
      .action([options] { return attach(*options); });
}

void add_detach(CLI::App& app) {
  auto arguments = std::make_shared<DetachArguments>();
  Command(app, "detach", "remove an attached task from a model")
      .argument("MODEL", arguments->model, "model folder or run folder")
      .argument("NAME", arguments->name, "the task")
      .option("--out", arguments->out, "FOLDER", "folder for the resulting model (default: change MODEL in place)")
      .flag("--json", arguments->json, "print JSON")
      .action([arguments] { return detach(*arguments); });
}

}  // namespace mnemo::cli
