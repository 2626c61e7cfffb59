#include "bundle/task_memories.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/bundle.h"
#include "bundle/foreign_images.h"
#include "bundle/model_folder.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::bundle {
namespace {

/// A model folder, with everything in it that is no weight carried along.
struct Folder {
  explicit Folder(const std::string& given) : path(model_folder(given)) {
    const AnyModel loaded = load_any(path);
    parts.options = models::as<models::ImageModel>(*loaded.model, base::join_path(path, "config.json")).options();
    foreign = loaded.format != nullptr;
    parts.tensors = weights::model_tensors(*loaded.model);
    content.card = read_card(path);
    content.vocabulary = foreign ? image_files_of(path) : files_beside(path);
  }

  /// Checks that the parts make a model, and writes them; the folder.
  std::string write(const std::optional<std::string>& out) {
    base::require(
        out || !foreign,
        "{}: a folder of another library, whose format has no tasks; give a folder for the joined model (--out)", path);
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

/// Lists the model's tasks in `result`.
void tell(const weights::StoredParts& parts, AttachedTasks& result) {
  const memory::LearnableTokensOptions memory = weights::tasks_of(parts.options);
  for (const memory::TaskOptions& task : memory.tasks) result.tasks.push_back(task.name);
  result.own_head = memory.tasks.empty() || memory.attention == memory::TaskAttention::masked;
}

/// The tasks that a task which extends all others sees: those with a class row, if it has one itself.
std::vector<std::string> all_with_class_rows(const weights::StoredParts& parts, const memory::TaskOptions& added) {
  std::vector<std::string> names;
  if (!added.new_class_token) return names;
  for (const memory::TaskOptions& task : weights::tasks_of(parts.options).tasks)
    if (task.new_class_token) names.push_back(task.name);
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
    const weights::TaskMemoryFile task = weights::read_task_memory(file);
    weights::AttachOptions how{options.name, {}};
    if (options.concatenate) how.sees.emplace();
    if (options.extend) how.sees = all_with_class_rows(folder.parts, task.task());
    if (!options.sees.empty()) how.sees = options.sees;
    int64_t bytes = 0;
    for (const auto& [name, tensor] : task.tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    weights::attach(folder.parts, task, file, how);
    const std::vector<memory::TaskOptions> now = weights::tasks_of(folder.parts.options).tasks;
    if (task.memory.attention == memory::TaskAttention::full) {
      base::log_warning("attach: {}: trained without a mask (attention = \"full\"): {}", file,
                        now.size() > 1
                            ? "every row sees the rows of every task, so the tasks of this model change one another's "
                              "results"
                            : "it changes the rows that the model's own head reads, so that head no longer works");
    }
    result.added.push_back({now.back().name, task.task().num_classes, task.task().num_mem_tokens, bytes});
  }
  result.folder = folder.write(options.out);
  tell(folder.parts, result);
  return result;
}

AttachedTasks detach_task(const std::string& model, const std::string& name, const std::optional<std::string>& out) {
  Folder folder(model);
  weights::detach(folder.parts, name, folder.path);
  AttachedTasks result{.folder = folder.write(out)};
  tell(folder.parts, result);
  return result;
}

}  // namespace mnemo::bundle
