#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/spans.h"
#include "ops/attention/task_attention.h"

namespace mnemo::core {

struct BackboneInput;

/// The parameters that one task adds to a vision backbone (Sandler et al. 2022); no state. D is the model width.
struct TaskTokens {
  std::string name;
  at::Tensor class_token;               ///< [1,1,D]: the task's class token; undefined: the task uses the backbone's
  bool class_position = true;           ///< add the position embedding of the backbone's class token
  std::vector<at::Tensor> memory = {};  ///< [m,D] for each layer; undefined for layers without memory
  bool norm_memory = false;             ///< apply the layer's first norm to the memory, as to other rows
  /// indices of other tasks whose class token and memory this task's class token may attend to
  std::vector<int64_t> sees = {};
};

/// How the memory rows of a layer are passed on to later layers.
///   none      they are keys and values of that layer only
///   first     rows of the first layer pass through all later layers
///   added     each layer adds its own rows to those from below
///   appended  each layer appends its own rows to those from below
enum class Propagation { none, first, added, appended };

/// The tasks that a backbone runs in one pass.
/// masked: existing rows see nothing of the tasks; a task's class token sees the existing rows, itself, its memory, and
/// the tasks in `sees`. Otherwise every row sees every row.
struct TaskMemory {
  std::vector<TaskTokens> tasks;
  bool masked = true;
  Propagation propagation = Propagation::none;
  at::Tensor class_token = {};  ///< [1,1,D] replacing the backbone's; undefined: the backbone's
};

/// How masked tasks are computed.
///   grouped  the existing rows alone, as without tasks; then each class row alone, attending to their keys and
///            values and to what it sees
///   dense    all rows and memories at once with the dense mask; the naive reference
enum class TaskForm { grouped, dense };

struct TasksResult {
  at::Tensor hidden;  ///< [B,T,D]: the existing rows after the final norm
  /// [B,1,D] after the final norm: the class row of each task; undefined for tasks without one.
  std::vector<at::Tensor> tasks;
  Grid grid = {};
};

/// Runs all masked tasks in one pass over images, for inference. Keeps a copy of the weights as they were when it was
/// created.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// pixels [B,C,H,W], normalised.
  virtual TasksResult run(const at::Tensor& pixels) const = 0;
};

/// An image backbone that runs the tasks of a learnable memory, whose class rows and memory join the layers.
class TaskBackbone {
 public:
  virtual ~TaskBackbone() = default;
  virtual TasksResult forward_tasks(const TaskMemory& tasks, const BackboneInput& input,
                                    TaskForm form = TaskForm::grouped) const = 0;
  /// The grid of rows for images [B,C,H,W].
  virtual Grid grid_of(const at::Tensor& pixels) const = 0;
  /// A faster forward_tasks for inference; null if there is none for these tasks.
  virtual std::unique_ptr<TaskRunner> task_runner(const TaskMemory& tasks) const = 0;
};

/// The attention mask of layer `layer` when all rows run at once, [class, patches; class rows; memory]: the existing
/// rows are tokens, memory is a context. `propagated` memory rows follow the class rows and are rows themselves.
AttendTable task_table(const TaskMemory& tasks, int64_t layer, int64_t old_rows, int64_t propagated = 0);

/// The rows that each class row sees in layer `layer` in addition to the existing rows; memories are counted task by
/// task.
std::vector<ops::TaskSight> task_sights(const TaskMemory& tasks, int64_t layer);

}  // namespace mnemo::core
