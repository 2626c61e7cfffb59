#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/output.h"
#include "bundle/foreign_images.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "experiment/experiment.h"
#include "models/build.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::cli {
namespace {

struct AttachArguments {
  std::string model;
  std::vector<std::string> files, sees;
  std::optional<std::string> name, out;
  bool extend = false, concatenate = false;
};

struct DetachArguments {
  std::string model, name;
  std::optional<std::string> out;
};

/// A model folder, with everything in it that is no weight carried along.
struct Folder {
  explicit Folder(const std::string& given) : path(experiment::model_folder(given)) {
    const bundle::AnyModel loaded = bundle::load_any(path);
    parts.options = models::options_of(*loaded.model);
    base::require(parts.options.backbone.is_vision(), "{}: expected a model of images, found backbone.type = \"{}\"",
                  base::join_path(path, "config.json"), parts.options.backbone.type);
    foreign = loaded.format != nullptr;
    parts.tensors = weights::model_tensors(*loaded.model);
    content = bundle::read_model_folder(path, {});
    content.vocabulary = foreign ? bundle::image_files_of(path) : experiment::files_beside(path);
  }

  /// Checks that the parts make a model, and writes them.
  void write(const std::optional<std::string>& out) {
    base::require(out || !foreign,
                  "{}: a folder of another library, which has no tasks; say where the joined model goes (--out)", path);
    content.config = base::to_json(base::write_options(parts.options)) + "\n";
    content.weights.tensors = parts.tensors;
    bundle::model_from(parts.options, content.weights, path);
    bundle::write_model_folder(out.value_or(path), content);
  }

  std::string path;
  bool foreign = false;
  weights::StoredParts parts;
  bundle::ModelFolder content;
};

std::vector<std::string> attached(const weights::StoredParts& parts) {
  std::vector<std::string> names;
  for (const base::Node& memory : parts.options.memory) {
    if (models::type_of(memory) != memory::LearnableTokens::kType) continue;
    for (const base::Node& task : memory.at("tasks").items()) names.push_back(task.at("name").as_string());
  }
  return names;
}

std::string summary_of(const Folder& folder, const std::optional<std::string>& out) {
  const size_t tasks = attached(folder.parts).size();
  return fmt::format("{}: {} task{} beside its own head\n", out.value_or(folder.path), tasks, tasks == 1 ? "" : "s");
}

int attach_tasks(const AttachArguments& arguments) {
  base::require(arguments.extend + arguments.concatenate + !arguments.sees.empty() <= 1,
                "attach: expected one of --extend, --concatenate and --sees");
  base::require(!arguments.name || arguments.files.size() == 1, "attach: --name goes with one file, found {}",
                arguments.files.size());
  Folder folder(arguments.model);
  std::string text;
  for (const std::string& file : arguments.files) {
    weights::AttachOptions options{arguments.name, {}};
    if (arguments.concatenate) options.sees.emplace();
    if (arguments.extend) options.sees = attached(folder.parts);
    if (!arguments.sees.empty()) options.sees = arguments.sees;
    const weights::TaskMemoryFile task = weights::read_task_memory(file);
    int64_t bytes = 0;
    for (const auto& [name, tensor] : task.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    weights::attach(folder.parts, task, file, options);
    text += fmt::format("{}: {} classes, {} memory tokens a layer, {} bytes of parameters\n",
                        attached(folder.parts).back(), task.task().num_classes, task.task().num_mem_tokens, bytes);
  }
  folder.write(arguments.out);
  base::print(text + summary_of(folder, arguments.out));
  return base::kDone;
}

int detach_task(const DetachArguments& arguments) {
  Folder folder(arguments.model);
  weights::detach(folder.parts, arguments.name, folder.path);
  folder.write(arguments.out);
  base::print(summary_of(folder, arguments.out));
  return base::kDone;
}

}  // namespace

void add_attach(CLI::App& app) {
  auto arguments = std::make_shared<AttachArguments>();
  Command(app, "attach",
          "attach tasks trained with `mnemo finetune` to an image model; its existing results do not change")
      .argument("MODEL", arguments->model, "model folder or run folder of the image model")
      .arguments("FILE", arguments->files, "task files, attached in this order")
      .flag("--extend", arguments->extend,
            "each task sees the class tokens and memories of all tasks attached before it")
      .flag("--concatenate", arguments->concatenate,
            "no task sees another (default: each sees what it saw in training)")
      .option("--sees", arguments->sees, "NAME", "let the new task see this attached task; may be repeated")
      .option("--name", arguments->name, "NAME", "name of the task in this model (default: the name in its file)")
      .option("--out", arguments->out, "FOLDER", "folder for the resulting model (default: change MODEL in place)")
      .footer(
          "mnemo attach models/vit clothing.task.safetensors digits.task.safetensors --concatenate\nmnemo classify "
          "models/vit picture.jpg")
      .action([arguments] { return attach_tasks(*arguments); });
}

void add_detach(CLI::App& app) {
  auto arguments = std::make_shared<DetachArguments>();
  Command(app, "detach", "remove an attached task from a model")
      .argument("MODEL", arguments->model, "model folder or run folder")
      .argument("NAME", arguments->name, "the task")
      .option("--out", arguments->out, "FOLDER", "folder for the resulting model (default: change MODEL in place)")
      .action([arguments] { return detach_task(*arguments); });
}

}  // namespace mnemo::cli
