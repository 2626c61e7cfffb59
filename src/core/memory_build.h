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
  std::vector<int64_t> layers;  ///< the layers that the memory serves, ascending
  int64_t dim = 0;
  at::Tensor like;         ///< a parameter of the model: gives the type and device of new states
  int64_t vocab_size = 0;  ///< 0 in a layer_stack
  /// Embeds tokens [..] int64 -> [..,D] as the model does, for memories with special tokens of their own; empty in a
  /// layer_stack, which has no tokens.
  std::function<at::Tensor(const at::Tensor& tokens)> embed = {};
  const Backbone* backbone = nullptr;  ///< the backbone that it serves; null for a single attention
};

}  // namespace mnemo::core
