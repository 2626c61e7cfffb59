#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/spans.h"
#include "ops/attention/task_attention.h"

namespace mnemo::core {

/// What one task adds to a vision backbone (Sandler et al. 2022): parameters, no state. D width of a row.
struct TaskTokens {
  std::string name;
  at::Tensor class_token;               ///< [1,1,D]: the task's own class row; undefined: it reads the backbone's
  bool class_position = true;           ///< the position of the backbone's class row is added to it
  std::vector<at::Tensor> memory = {};  ///< [m,D] for each layer; undefined where a layer has none
  bool norm_memory = false;             ///< memory passes the layer's first norm, as rows do
  /// numbers of other tasks whose class row and memory this one's class row may attend to
  std::vector<int64_t> sees = {};
};

/// What becomes of memory rows above the layer that brought them.
///   none      they are keys and values of that layer alone
///   first     rows of the first layer go on through all layers above
///   added     each layer adds its own to those that come up
///   appended  each layer puts its own behind those that come up
enum class Propagation { none, first, added, appended };

/// The tasks that a backbone serves in one pass.
///   masked  old rows see nothing of the tasks; a task's class row sees the old rows, itself, its memory, and what it
///   `sees`
///   else    everything sees everything
struct TaskMemory {
  std::vector<TaskTokens> tasks;
  bool masked = true;
  Propagation propagation = Propagation::none;
  at::Tensor class_token = {};  ///< [1,1,D] in place of the backbone's own; undefined: the backbone's
};

/// Who attends to whom in layer `layer` when all rows run at once, [class, patches; class rows; memory]: the old rows
/// are tokens, memory is a context. `propagated` memory rows stand behind the class rows, rows themselves.
AttendTable task_table(const TaskMemory& tasks, int64_t layer, int64_t old_rows, int64_t propagated = 0);

/// What each class row sees in layer `layer` beside the old rows; memories counted task by task.
std::vector<ops::TaskSight> task_sights(const TaskMemory& tasks, int64_t layer);

}  // namespace mnemo::core
