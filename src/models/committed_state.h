#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "core/state.h"

namespace mnemo::models {

/// The per-model fields of a state (the GRC cache) that have been committed to a model.
class CommittedState {
 public:
  void commit(const core::State& state);
  /// `fresh` with the committed values, on its own device and in its own type.
  core::State apply(const core::State& fresh) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> fields_;
};

}  // namespace mnemo::models
