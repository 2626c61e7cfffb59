#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/model_outline.h"
#include "core/task_tokens.h"
#include "layers/parts.h"

namespace mnemo::memory {

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
  std::optional<std::string> memory_norm, class_token_position;
  std::vector<std::string> labels;
  template <class V>
  void visit(V&& v) {
    v("name", name, "what the task is called; letters, digits, - and _");
    v("num_mem_tokens", num_mem_tokens, "memory tokens of each layer that has them", base::range(0, 1 << 16));
    v("layers", layers, "numbers of the layers that have memory, from 0; unset: all", base::at_least(0));
    v("num_classes", num_classes, "classes; 0: as many as the data has", base::range(0, 1 << 20));
    v("new_class_token", new_class_token, "the task has a class row of its own beside the backbone's");
    v("own_class_token", own_class_token,
      "full attention: the task brings a copy of its own of the backbone's class token, which stands in its place");
    v("own_adapters", own_adapters,
      "full attention: the model's adapters are this task's: they came with it and go with it");
    v("sees", sees,
      "masked: earlier tasks whose class row and memory this one's class row may attend to. [] is concatenation, all "
      "earlier tasks extension");
    v("memory_norm", memory_norm, "unset: the memory's", base::one_of("after", "before"));
    v("class_token_position", class_token_position, "unset: the memory's", base::one_of("class", "none"));
    v("labels", labels, "names of the classes; none: numbers");
  }
  void validate(const base::Where& where) const;
};

struct LearnableTokensOptions {
  std::string attention = "masked";
  std::string memory_norm = "after";
  std::string class_token_position = "class";
  std::string propagation = "none";
  std::vector<TaskOptions> tasks;
  template <class V>
  void visit(V&& v) {
    v("attention", attention,
      "masked: only a task's own class row sees its class row and memory, so that tasks can be joined; full: "
      "everything sees everything",
      base::one_of("masked", "full"));
    v("memory_norm", memory_norm,
      "memory enters a layer's attention after its first norm as it is, or before it, like rows",
      base::one_of("after", "before"));
    v("class_token_position", class_token_position,
      "added to new class tokens: class, the position of the backbone's; none", base::one_of("class", "none"));
    v("propagation", propagation,
      "none: every layer has memory of its own; first: the first layer's goes on through all above; added, appended: "
      "every layer's, added "
      "to those that come up or put behind them (full attention, one task, memory_norm = \"before\")",
      base::one_of("none", "first", "added", "appended"));
    v("tasks", tasks, "the tasks, in the order in which they were attached");
  }
  void validate(const base::Where& where) const;
  /// Throws InputError where they cannot stand in the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
};

/// Learnable memory for a vision Transformer (Sandler et al. 2022): for each task rows that layers see as further keys
/// and values, a class token and a head. These are parameters; nothing is carried from image to image. A layer with
/// rows X and memory E:
///   u = norm1(X);  q of u;  k, v of [u; E], or [u; norm1(E)];  softmax(q k^T / sqrt(d)) v over what the table allows
/// Parameters: task.NAME.class_token [1,1,D], .cls_token [1,1,D] (own_class_token), .memory.L [m,D], .head.weight
/// [C,D], .head.bias [C].
class LearnableTokens {
 public:
  using Options = LearnableTokensOptions;
  static constexpr const char* kType = "learnable_tokens";
  /// Throws InputError for a layer that the backbone has not, or a task without classes.
  LearnableTokens(const Options& options, const layers::Scope& root, int64_t num_layers, int64_t dim, double init_std);

  const Options& options() const { return options_; }
  /// What the backbone is given. The tensors are the parameters.
  core::TaskMemory tasks() const;
  /// The head of a task: hidden [..,D] -> logits [..,C].
  const layers::Linear& head(size_t task) const { return parts_[task].head; }
  /// The number of the task of that name. Throws InputError naming those that there are.
  size_t find(const std::string& name) const;
  /// Numbers of the tasks that have a class row, in the order of the rows.
  std::vector<size_t> class_rows() const;

 private:
  struct Part {
    at::Tensor class_token, cls_token;
    std::vector<at::Tensor> memory;
    layers::Linear head;
  };
  Options options_;
  std::vector<Part> parts_;
};

}  // namespace mnemo::memory
