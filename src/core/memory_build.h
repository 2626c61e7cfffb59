#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "layers/parameters.h"

namespace mnemo::core {

class Backbone;

/// The position of a layer-context or sequence memory in a model. D `dim`.
struct MemoryBuild {
  layers::Scope scope;          ///< "memory"
  int64_t num_layers = 0;       ///< of the backbone
  std::vector<int64_t> layers;  ///< that the memory serves, in rising order
  int64_t dim = 0;
  at::Tensor like;         ///< a parameter of the model: type and device of fresh states
  int64_t vocab_size = 0;  ///< of the model's tokens; 0 in a layer_stack
  /// Rows of tokens as the model embeds them, [..] int64 -> [..,D], for memories with special tokens of their own;
  /// empty in a layer_stack, which has no tokens.
  std::function<at::Tensor(const at::Tensor& tokens)> embed = {};
  const Backbone* backbone = nullptr;  ///< the layers it serves; null for a single attention
};

}  // namespace mnemo::core
