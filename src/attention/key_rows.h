#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "core/attention.h"

namespace mnemo::attention {

/// The rows that keys and values come from: the contexts alone in a cross table, else [context; x].
inline at::Tensor key_rows(const core::AttentionInput& input) {
  if (input.table.is_cross()) return input.context;
  return input.context.defined() ? at::cat({input.context, input.x}, 1) : input.x;
}

}  // namespace mnemo::attention
