#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/adapter.h"
#include "memory/learnable_tokens.h"
#include "models/options.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// One task apart from its backbone: a small safetensors file.
///   tensors   task.NAME.class_token, .cls_token, .memory.L, .head.weight, .head.bias; with own_adapters
///   backbone.layers.L.adapter1|2.*
///   metadata  format "mnemo-task/2"; config: the memory options with this one task, and adapters, as JSON; backbone:
///   its checksum;
///             sees: checksum of each task that it saw in training, as JSON; about: free words
struct TaskMemoryFile {
  memory::LearnableTokensOptions memory;  ///< with exactly one task
  std::optional<layers::AdapterOptions> adapters;
  NamedTensors tensors;
  std::string backbone;
  std::vector<std::pair<std::string, std::string>> sees;  ///< name and checksum of each task of memory.tasks[0].sees
  std::string about;

  const memory::TaskOptions& task() const { return memory.tasks.front(); }
};

/// Writes the file whole or not at all.
void write_task_memory(const std::string& path, const TaskMemoryFile& task);
/// Throws InputError naming the file and what is wrong with it; nothing in it is trusted.
TaskMemoryFile read_task_memory(const std::string& path);

/// A model's options and tensors as they lie in a model folder.
struct StoredParts {
  models::ModelOptions options;
  NamedTensors tensors;
};

/// SHA-256 of what a task was made for: the backbone's options as JSON (but for dropout, drop_path and init_std, which
/// change no result), with adapters of the model's own and the head's pool; then names, shapes and float32 numbers of
/// the tensors "backbone.*". Adapters that came with a task are left out.
std::string backbone_checksum(const StoredParts& model);
/// SHA-256 of the names, shapes and float32 numbers of one task's tensors, whatever its name is.
std::string task_checksum(const NamedTensors& tensors, const std::string& name);

/// How a task is attached.
struct AttachOptions {
  std::optional<std::string> name = {};  ///< what it is called here; unset: as in the file
  /// attached tasks that it extends; unset: those that it saw in training
  std::optional<std::vector<std::string>> sees = {};
};

/// Puts a task behind those that are attached. Nothing of the backbone and of other tasks is touched. Throws
/// InputError, naming the file, where it was made for another backbone, a task of that name is there, what it is to see
/// is not, or its tensors are not those that its options speak of; the model may be half changed then.
void attach(StoredParts& model, const TaskMemoryFile& task, const std::string& file, const AttachOptions& options = {});
/// Takes a task out. Throws InputError where there is none of that name, or another one sees it.
void detach(StoredParts& model, const std::string& name, const std::string& folder);

/// A task of a model, as a file of its own.
TaskMemoryFile take_task(const StoredParts& model, const std::string& name);

}  // namespace mnemo::weights
