#pragma once

#include <string>
#include <vector>

#include "core/task_tokens.h"
#include "layers/parts.h"
#include "memory/learnable_tokens_options.h"

namespace mnemo::memory {

/// Learnable memory for a vision Transformer (Sandler et al. 2022): for each task, rows that layers see as additional
/// keys and values, a class token and a head. These are parameters; nothing is carried from image to image. A layer
/// with rows X and memory E:
///   u = norm1(X);  q of u;  k, v of [u; E], or [u; norm1(E)];  softmax(q k^T / sqrt(d)) v with the attention mask
/// Parameters: task.NAME.class_token [1,1,D], .cls_token [1,1,D] (own_class_token), .memory.L [m,D], .head.weight
/// [C,D], .head.bias [C].
class LearnableTokens {
 public:
  using Options = LearnableTokensOptions;
  static constexpr const char* kType = "learnable_tokens";
  /// Throws InputError for a layer that the backbone does not have, or a task without classes.
  LearnableTokens(const Options& options, const layers::Scope& root, int64_t num_layers, int64_t dim, double init_std);

  const Options& options() const { return options_; }
  /// The input for the backbone. The tensors are the parameters themselves.
  core::TaskMemory tasks() const;
  /// The head of a task: hidden [..,D] -> logits [..,C].
  const layers::Linear& head(size_t task) const { return parts_[task].head; }
  /// The index of the task with that name. Throws InputError listing the existing names.
  size_t find(const std::string& name) const;
  /// Indices of the tasks that have a class row, in the order of the rows.
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
