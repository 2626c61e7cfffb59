#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "core/state.h"

namespace mnemo::models {

/// The per-model fields of a state (the GRC cache) that a model has made its own.
class CommittedState {
 public:
  void commit(const core::State& state);
  /// `fresh` with what was committed, on its own device and in its own type.
  core::State apply(const core::State& fresh) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> fields_;
};

}  // namespace mnemo::models
