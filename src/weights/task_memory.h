#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/adapter_options.h"
#include "memory/learnable_tokens_options.h"
#include "models/options.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// One task without its backbone: a small safetensors file.
///   tensors   task.NAME.class_token, .cls_token, .memory.L, .head.weight, .head.bias; with own_adapters
///             backbone.layers.L.adapter1|2.*
///   metadata  format "mnemo-task/2"; config: the memory options with this one task, and adapters, as JSON;
///             backbone: its checksum; sees: checksum of each task that it saw in training, as JSON; about: free text
struct TaskMemoryFile {
  memory::LearnableTokensOptions memory;  ///< with exactly one task
  std::optional<layers::AdapterOptions> adapters;
  NamedTensors tensors;
  std::string backbone;
  std::vector<std::pair<std::string, std::string>> sees;  ///< name and checksum of each task of memory.tasks[0].sees
  std::string about;

  const memory::TaskOptions& task() const { return memory.tasks.front(); }
};

/// Writes the file atomically.
void write_task_memory(const std::string& path, const TaskMemoryFile& task);
/// Throws InputError that names the file and what is wrong with it; its content is not trusted.
TaskMemoryFile read_task_memory(const std::string& path);

/// A model's options and tensors, as stored in a model folder.
struct StoredParts {
  models::ModelOptions options;
  NamedTensors tensors;
};

/// The tasks attached to a model, with what they share; without any, the defaults.
memory::LearnableTokensOptions tasks_of(const models::ModelOptions& options);

/// SHA-256 of the backbone a task was trained for: its options as JSON (but for dropout, drop_path and init_std, which
/// change no result), with adapters of the model's own and the head's pool; then names, shapes and float32 numbers of
/// the tensors "backbone.*". Adapters that came with a task are left out.
std::string backbone_checksum(const StoredParts& model);
/// SHA-256 of the names, shapes and float32 numbers of one task's tensors, whatever its name is, and of the same of the
/// tasks that it sees.
std::string task_checksum(const StoredParts& model, const std::string& name);

/// Options for attaching a task.
struct AttachOptions {
  std::optional<std::string> name = {};  ///< its name in this model; unset: as in the file
  /// attached tasks that it sees; unset: those that it saw in training
  std::optional<std::vector<std::string>> sees = {};
};

/// Appends a task to those already attached. The backbone and other tasks are not changed. Throws InputError that names
/// the file if the task was trained for another backbone, its name is already used, a task it should see is missing, or
/// its tensors do not match its options; the model may then be partly changed.
void attach(StoredParts& model, const TaskMemoryFile& task, const std::string& file, const AttachOptions& options = {});
/// Removes a task. Throws InputError if there is none with that name, or if another task sees it.
void detach(StoredParts& model, const std::string& name, const std::string& folder);

/// Extracts a task of a model, for writing it to a file.
TaskMemoryFile take_task(const StoredParts& model, const std::string& name);

}  // namespace mnemo::weights
