#pragma once

#include <ATen/core/Tensor.h>

#include <fmt/ranges.h>

#include <string>

#include "base/error.h"

namespace mnemo::core {

/// Throws ShapeError unless a tensor of the state has that shape; otherwise the state belongs to another model or
/// batch.
inline void require_state(const char* who, const at::Tensor& tensor, at::IntArrayRef expected) {
  if (tensor.defined() && tensor.sizes() == expected) return;
  throw base::ShapeError(fmt::format(
      "[{}] expected a state of [{}], found {}; is it of another model or another batch?", who,
      fmt::join(expected, ","), tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ",")) : "none"));
}

}  // namespace mnemo::core
