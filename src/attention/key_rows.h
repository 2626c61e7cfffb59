#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "core/attention.h"

namespace mnemo::attention {

/// The rows that keys and values are computed from: only the contexts in a cross table, otherwise [context; x].
inline at::Tensor key_rows(const core::AttentionInput& input) {
  if (input.table.is_cross()) return input.context;
  return input.context.defined() ? at::cat({input.context, input.x}, 1) : input.x;
}

/// Which rows are real, [B,K] over all keys, undefined = all. For attentions that only support the causal rule (in a
/// bidirectional model: the open rule).
inline const at::Tensor& plain_validity(const core::AttendTable& table, bool causal, const char* who) {
  base::ensure(causal ? table.plain_causal() : table.open(),
               "{} does not support this attention table: it must be {} throughout", who, causal ? "causal" : "open");
  return table.valid();
}

}  // namespace mnemo::attention
