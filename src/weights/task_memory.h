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
///   tensors   task.NAME.class_token, .cls_token, .memory.L, .head.weight, .head.bias; with adapters backbone.layers.L.adapter1|2.*
///   metadata  format "mnemo-task/1"; config: the memory options with this one task, and adapters, as JSON; backbone: its checksum;
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

/// SHA-256 of the names, shapes and float32 numbers of the tensors that are the backbone's alone: "backbone.*" without adapters.
std::string backbone_checksum(const NamedTensors& tensors);
/// The same of one task's tensors, whatever its name is.
std::string task_checksum(const NamedTensors& tensors, const std::string& name);

/// A model's options and tensors as they lie in a model folder.
struct StoredParts {
  models::ModelOptions options;
  NamedTensors tensors;
};

/// How a task is attached.
struct AttachOptions {
  std::optional<std::string> name = {};               ///< what it is called here; unset: as in the file
  std::optional<std::vector<std::string>> sees = {};  ///< attached tasks that it extends; unset: those that it saw in training
};

/// Puts a task behind those that are attached. Nothing of the backbone and of other tasks is touched. Throws InputError where the file was made
/// for another backbone, a task of that name is there, or what it is to see is not.
void attach(StoredParts& model, const TaskMemoryFile& task, const std::string& file, const AttachOptions& options = {});
/// Takes a task out. Throws InputError where there is none of that name, or another one sees it.
void detach(StoredParts& model, const std::string& name, const std::string& folder);

/// A task of a model, as a file of its own.
TaskMemoryFile take_task(const StoredParts& model, const std::string& name);

}  // namespace mnemo::weights
