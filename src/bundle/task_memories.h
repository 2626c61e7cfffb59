#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::bundle {

/// Task memories (NAME.task.safetensors) that join a model of images, each with a head of its own.
struct AttachOptions {
  std::string model;                     ///< the backbone's model folder, a run's folder, or another library's folder
  std::vector<std::string> files = {};   ///< joined in this order
  std::optional<std::string> name = {};  ///< name of one file's task in this model; unset: as in the file
  std::optional<std::string> out = {};   ///< where the joined model goes; unset: into `model` itself
  // Which attached tasks a task sees; none of the three: those that it saw in training.
  bool extend = false;                 ///< all with a class row that are attached before it
  bool concatenate = false;            ///< none
  std::vector<std::string> sees = {};  ///< these
};

struct AttachedTask {
  std::string name;
  int64_t num_classes = 0, num_mem_tokens = 0;
  int64_t bytes = 0;  ///< of its parameters
};

struct AttachedTasks {
  std::string folder;  ///< the model that was written
  std::vector<AttachedTask> added = {};
  std::vector<std::string> tasks = {};  ///< all that are attached now
  bool own_head = true;                 ///< whether the model's own head still answers
};

/// Joins task memories to a model, whose earlier results stay as they were bit for bit. A task trained without a mask
/// takes the place of the model's own head, and changes the results of other such tasks (Sandler et al. 2022, table 6:
/// interference); a warning says so. Throws InputError for a task of
/// another backbone, a name that is taken, and options that exclude each other.
AttachedTasks attach_tasks(const AttachOptions& options);

/// Takes a task out of a model. Throws InputError where there is none of that name, or another one sees it.
AttachedTasks detach_task(const std::string& model, const std::string& name,
                          const std::optional<std::string>& out = {});

}  // namespace mnemo::bundle
