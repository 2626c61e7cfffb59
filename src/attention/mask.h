#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "core/attention.h"

namespace mnemo::attention {

/// The table as a boolean mask, or an undefined tensor where every query sees every key.
inline at::Tensor attend_mask(const core::AttendTable& table) {
  const bool one_causal_query = table.num_rows() == 1 && table.plain_causal();
  if (!table.valid().defined() && (one_causal_query || table.open())) return {};
  return table.expand();
}

/// The rows that keys and values come from: the contexts alone in a cross table, else [context; x].
inline at::Tensor key_rows(const core::AttentionInput& input) {
  if (input.table.is_cross()) return input.context;
  return input.context.defined() ? at::cat({input.context, input.x}, 1) : input.x;
}

}  // namespace mnemo::attention
