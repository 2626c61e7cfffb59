#include "bundle/task_memories.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/bundle.h"
#include "bundle/foreign_images.h"
#include "bundle/model_folder.h"
#include "memory/learnable_tokens.h"
#include "models/model.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::bundle {
namespace {

/// A model folder, with everything in it that is no weight carried along.
struct Folder {
  explicit Folder(const std::string& given) : path(model_folder(given)) {
    const AnyModel loaded = load_any(path);
    parts.options = loaded.model->options();
    base::require(parts.options.backbone.input() == core::InputKind::images,
                  "{}: expected a model of images, found backbone.type = \"{}\"", base::join_path(path, "config.json"),
                  parts.options.backbone.type);
    foreign = loaded.format != nullptr;
    parts.tensors = weights::model_tensors(*loaded.model);
    content = read_model_folder(path, {});
    content.vocabulary = foreign ? image_files_of(path) : files_beside(path);
  }

  /// Checks that the parts make a model, and writes them; the folder.
  std::string write(const std::optional<std::string>& out) {
    base::require(out || !foreign,
                  "{}: a folder of another library, which has no tasks; say where the joined model goes (--out)", path);
    content.config = base::to_json(base::write_options(parts.options)) + "\n";
    content.weights.tensors = parts.tensors;
    model_from(parts.options, content.weights, path);
    write_model_folder(out.value_or(path), content);
    return out.value_or(path);
  }

  std::string path;
  bool foreign = false;
  weights::StoredParts parts;
  ModelFolder content;
};

std::vector<std::string> attached(const weights::StoredParts& parts) {
  std::vector<std::string> names;
  for (const base::Node& memory : parts.options.memory) {
    if (base::type_of(memory) != memory::LearnableTokens::kType) continue;
    for (const base::Node& task : memory.at("tasks").items()) names.push_back(task.at("name").as_string());
  }
  return names;
}

}  // namespace

AttachedTasks attach_tasks(const AttachOptions& options) {
  base::require(options.extend + options.concatenate + !options.sees.empty() <= 1,
                "attach: expected one of --extend, --concatenate and --sees");
  base::require(!options.name || options.files.size() == 1, "attach: --name goes with one file, found {}",
                options.files.size());
  Folder folder(options.model);
  AttachedTasks result;
  for (const std::string& file : options.files) {
    weights::AttachOptions how{options.name, {}};
    if (options.concatenate) how.sees.emplace();
    if (options.extend) how.sees = attached(folder.parts);
    if (!options.sees.empty()) how.sees = options.sees;
    const weights::TaskMemoryFile task = weights::read_task_memory(file);
    int64_t bytes = 0;
    for (const auto& [name, tensor] : task.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    weights::attach(folder.parts, task, file, how);
    if (attached(folder.parts).size() > 1 && task.memory.attention == memory::TaskAttention::full)
      base::log_warning(
          "attach: {}: trained without a mask (attention = \"full\"): every row sees the rows of every task, so the "
          "tasks "
          "of this model change one another's results",
          file);
    result.added.push_back({attached(folder.parts).back(), task.task().num_classes, task.task().num_mem_tokens, bytes});
  }
  result.folder = folder.write(options.out);
  result.tasks = attached(folder.parts);
  return result;
}

AttachedTasks detach_task(const std::string& model, const std::string& name, const std::optional<std::string>& out) {
  Folder folder(model);
  weights::detach(folder.parts, name, folder.path);
  AttachedTasks result{.folder = folder.write(out)};
  result.tasks = attached(folder.parts);
  return result;
}

}  // namespace mnemo::bundle
