#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "layers/parameters.h"

namespace mnemo::core {

class Backbone;

/// The position of a layer-context or sequence memory in a model. D `dim`.
struct MemoryBuild {
  layers::Scope scope;  ///< "memory"
  int64_t num_layers = 0;
  int64_t dim = 0;
  at::Tensor like;  ///< a parameter of the model, giving type and device of new states
  /// Embeds tokens, [..] int64 -> [..,D], for memories with their own special tokens; empty in a layer_stack, which has
  /// no tokens.
  std::function<at::Tensor(const at::Tensor& tokens)> embed = {};
  const Backbone* backbone = nullptr;  ///< the layers it serves; null for a single attention
};

}  // namespace mnemo::core
