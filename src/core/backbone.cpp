#include "core/backbone.h"

#include "base/error.h"

namespace mnemo::core {

State Backbone::initial_state(int64_t batch) const {
  State::Children children;
  for (int64_t layer = 0; layer < num_layers(); ++layer)
    children.emplace_back(layer_name(layer), attention(layer).initial_state(batch));
  return State::list(std::move(children));
}

at::Tensor Backbone::attention_rows(int64_t, const at::Tensor&) const {
  throw base::InternalError("a backbone without layer contexts");
}

TasksResult Backbone::forward_tasks(const TaskMemory&, const BackboneInput&, TaskForm) const {
  throw base::InternalError("a backbone without tasks");
}

Grid Backbone::grid_of(const at::Tensor&) const { throw base::InternalError("a backbone without tasks"); }

std::unique_ptr<TaskRunner> Backbone::task_runner(const TaskMemory&) const { return nullptr; }

}  // namespace mnemo::core
