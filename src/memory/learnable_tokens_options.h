#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/model_outline.h"
#include "core/propagation.h"

namespace mnemo::memory {

/// Where a layer adds its memory: after its first norm, which the memory then bypasses, or before it.
enum class MemoryNorm { after, before };
/// The position of a new class token: that of the backbone's class token, or none.
enum class ClassTokenPosition { same, none };
/// Which rows see a task's memory: only the task's own class token, or every row.
enum class TaskAttention { masked, full };

/// One task of learnable_tokens.
struct TaskOptions {
  std::string name;
  int64_t num_mem_tokens = 5;
  std::optional<std::vector<int64_t>> layers;
  int64_t num_classes = 0;
  bool new_class_token = true;
  bool own_class_token = false;
  bool own_adapters = false;
  std::vector<std::string> sees;
  std::optional<MemoryNorm> memory_norm;
  std::optional<ClassTokenPosition> class_token_position;
  std::vector<std::string> labels;
  template <class V>
  void visit(V&& v) {
    v("name", name, "name of the task: letters, digits, - and _");
    v("num_mem_tokens", num_mem_tokens, "number of memory tokens per layer with memory", base::range(0, 1 << 16));
    v("layers", layers, "layers with memory, counted from 0; unset: all", base::at_least(0));
    v("num_classes", num_classes, "number of classes; 0: as many as the data has", base::range(0, 1 << 20));
    v("new_class_token", new_class_token, "add a class token for the task");
    v("own_class_token", own_class_token,
      "full attention: the task replaces the backbone's class token by its own copy");
    v("own_adapters", own_adapters,
      "full attention: the model's adapters belong to this task and are attached and detached with it");
    v("sees", sees,
      "masked: earlier tasks whose class token and memory this task's class token may attend to; []: concatenation; "
      "all earlier tasks: extension");
    v("memory_norm", memory_norm, "unset: the memory's", base::one_of("after", "before"));
    v("class_token_position", class_token_position, "unset: the memory's", base::one_of("class", "none"));
    v("labels", labels, "names of the classes; empty: numbers");
  }
  void validate(const base::Where& where) const;
};

struct LearnableTokensOptions {
  TaskAttention attention = TaskAttention::masked;
  MemoryNorm memory_norm = MemoryNorm::before;
  ClassTokenPosition class_token_position = ClassTokenPosition::same;
  core::Propagation propagation = core::Propagation::none;
  std::vector<TaskOptions> tasks;
  template <class V>
  void visit(V&& v) {
    v("attention", attention,
      "masked: only the task's own class token sees its memory, so that tasks can be combined; full: every row sees "
      "every row",
      base::one_of("masked", "full"));
    v("memory_norm", memory_norm,
      "add the memory before a layer's first norm, as the paper says, or after it, as public code does",
      base::one_of("after", "before"));
    v("class_token_position", class_token_position,
      "position of new class tokens: that of the backbone's class token, or none", base::one_of("class", "none"));
    v("propagation", propagation,
      "none: each layer has its own memory; first: the first layer's memory passes through all later layers; added, "
      "appended: each layer's memory is added or appended to the memory from below (full attention, one task, "
      "memory_norm = \"before\")",
      base::one_of("none", "first", "added", "appended"));
    v("tasks", tasks, "tasks in the order they were attached");
  }
  void validate(const base::Where& where) const;
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
};

}  // namespace mnemo::memory
