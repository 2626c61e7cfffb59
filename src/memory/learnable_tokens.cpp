#include "memory/learnable_tokens.h"

#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/nearest.h"

namespace mnemo::memory {
void TaskOptions::validate(const base::Where& where) const {
  const bool plain = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_';
  });
  where.require(plain, "name", "expected 1 to 64 letters, digits, - and _, found {}", base::in_quotes(name));
  where.require(name != "base", "name", "\"base\" is the name of the backbone's own head");
  if (layers) {
    where.require(std::is_sorted(layers->begin(), layers->end()) &&
                      std::adjacent_find(layers->begin(), layers->end()) == layers->end(),
                  "layers", "expected ascending numbers");
    where.require(num_mem_tokens == 0 || !layers->empty(), "layers", "{} memory tokens, but no layer that has them",
                  num_mem_tokens);
  }
  where.require(!(new_class_token && own_class_token), "own_class_token",
                "new_class_token = true gives the task a class row already");
  where.require(labels.empty() || num_classes == static_cast<int64_t>(labels.size()), "labels",
                "expected {}, one for each class, found {}", num_classes, labels.size());
}

void LearnableTokensOptions::validate(const base::Where& where) const {
  const bool masked = attention == TaskAttention::masked;
  std::set<std::string> names, with_class_row;
  for (const TaskOptions& task : tasks) {
    const auto require = [&](bool good, const char* key, const std::string& what) {
      where.require(good, "tasks", "'{}': {}: {}", task.name, key, what);
    };
    require(names.insert(task.name).second, "name", "it appears twice");
    require(!masked || task.new_class_token || task.num_mem_tokens == 0, "num_mem_tokens",
            "attention = \"masked\" shows memory only to the task's new class token; expected new_class_token = true, "
            "or 0 tokens");
    require(!masked || !task.own_class_token, "own_class_token", "it changes existing rows; use attention = \"full\"");
    require(!masked || !task.own_adapters, "own_adapters", "they change existing rows; use attention = \"full\"");
    require(masked || task.sees.empty(), "sees", "with attention = \"full\" every row sees every row; expected []");
    std::set<std::string> seen;
    for (const std::string& other : task.sees) {
      require(task.new_class_token, "sees", "a task without its own class row sees nothing");
      require(with_class_row.contains(other), "sees",
              fmt::format("'{}' is not an earlier task with its own class row", other));
      require(seen.insert(other).second, "sees", fmt::format("'{}' appears twice", other));
    }
    if (task.new_class_token) with_class_row.insert(task.name);
    if (propagation == core::Propagation::none) continue;
    require(task.memory_norm.value_or(memory_norm) == MemoryNorm::before, "memory_norm",
            "propagated rows pass every norm; expected \"before\"");
    require(task.num_mem_tokens > 0, "num_mem_tokens", "expected memory to propagate, found 0");
  }
  where.require(propagation == core::Propagation::none || (!masked && tasks.size() <= 1), "propagation",
                "only attention = \"full\" with one task passes memory on; found attention = \"{}\" and {} tasks",
                masked ? "masked" : "full", tasks.size());
  const auto own = std::count_if(tasks.begin(), tasks.end(),
                                 [](const TaskOptions& task) { return task.own_class_token; });
  where.require(own <= 1, "tasks", "{} tasks replace the backbone's class token; only one can", own);
  const auto adapted = std::count_if(tasks.begin(), tasks.end(),
                                     [](const TaskOptions& task) { return task.own_adapters; });
  where.require(adapted <= 1, "tasks", "{} tasks have adapters; only one can", adapted);
}

void LearnableTokensOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(model.takes_tasks && model.whole, "memory",
                "'{}' requires backbone.type = \"vit\" and kind = \"model\"; found \"{}\" and \"{}\"",
                LearnableTokens::kType, model.backbone, model.whole ? "model" : "layer_stack");
  where.require(model.memories.size() == 1, "memory", "'{}' must be the only memory, found {} memories",
                LearnableTokens::kType, model.memories.size());
  for (const TaskOptions& task : tasks) {
    where.require(model.adapters || !task.own_adapters, "adapters",
                  "they are those of task '{}' (own_adapters); found none", task.name);
  }
}

LearnableTokens::LearnableTokens(const Options& options, const layers::Scope& root, int64_t num_layers, int64_t dim,
                                 double init_std)
    : options_(options) {
  using layers::ParameterKind;
  const bool first_only = options.propagation == core::Propagation::first;
  for (TaskOptions& task : options_.tasks) {
    base::require(task.num_classes >= 2, "learnable_tokens: task '{}': expected num_classes of at least 2, found {}",
                  task.name, task.num_classes);
    if (!task.layers) {
      task.layers.emplace(static_cast<size_t>(num_layers));
      std::iota(task.layers->begin(), task.layers->end(), 0);
    }
    const layers::Scope scope = root / "task" / task.name;
    Part part;
    part.memory.resize(static_cast<size_t>(num_layers));
    if (task.new_class_token)
      part.class_token = scope.add("class_token", {1, 1, dim}, layers::normal(init_std), ParameterKind::memory);
    if (task.own_class_token)
      part.cls_token = scope.add("cls_token", {1, 1, dim}, layers::normal(init_std), ParameterKind::memory);
    for (const int64_t layer : *task.layers) {
      base::require(layer < num_layers, "learnable_tokens: task '{}': expected layers 0 to {}, found {}", task.name,
                    num_layers - 1, layer);
      if (task.num_mem_tokens == 0 || (first_only && layer != task.layers->front())) continue;
      part.memory[static_cast<size_t>(layer)] = (scope / "memory")
                                                    .add(std::to_string(layer), {task.num_mem_tokens, dim},
                                                         layers::normal(init_std), ParameterKind::memory);
    }
    part.head = layers::Linear(scope / "head", dim, task.num_classes, true, init_std);
    parts_.push_back(std::move(part));
  }
}

core::TaskMemory LearnableTokens::tasks() const {
  core::TaskMemory memory;
  memory.masked = options_.attention == TaskAttention::masked;
  memory.propagation = options_.propagation;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const TaskOptions& task = options_.tasks[k];
    core::TaskTokens tokens{task.name, parts_[k].class_token};
    tokens.class_position = task.class_token_position.value_or(options_.class_token_position) ==
                            ClassTokenPosition::same;
    tokens.memory = parts_[k].memory;
    tokens.norm_memory = task.memory_norm.value_or(options_.memory_norm) == MemoryNorm::before;
    for (const std::string& other : task.sees) tokens.sees.push_back(static_cast<int64_t>(find(other)));
    memory.tasks.push_back(std::move(tokens));
    if (parts_[k].cls_token.defined()) memory.class_token = parts_[k].cls_token;
  }
  return memory;
}

size_t LearnableTokens::find(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t k = 0; k < options_.tasks.size(); ++k) {
    if (options_.tasks[k].name == name) return k;
    names.push_back(options_.tasks[k].name);
  }
  base::input_error("no task {} is attached{}{}", base::in_quotes(name),
                    names.empty() ? "; the model has no tasks" : "", base::suggestion(name, names));
}

std::vector<size_t> LearnableTokens::class_rows() const {
  std::vector<size_t> rows;
  for (size_t k = 0; k < parts_.size(); ++k) {
    if (parts_[k].class_token.defined()) rows.push_back(k);
  }
  return rows;
}

}  // namespace mnemo::memory
