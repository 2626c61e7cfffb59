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

/// The part of q, k and v that belongs to the call's own rows. Undefined in a cross table, whose keys come from other
/// rows.
inline layers::AttentionProjections::Heads own_rows(const core::AttentionInput& input,
                                                    const layers::AttentionProjections::Heads& all) {
  const int64_t count = all.q.size(2), before = all.k.size(2) - count;
  if (input.table.is_cross()) return {};
  if (before == 0) return all;
  return {all.q, all.k.narrow(2, before, count), all.v.narrow(2, before, count)};
}

/// Which rows are real, [B,K] over all keys, undefined = all. For attentions that only support the causal rule (in a
/// bidirectional model: the open rule).
inline const at::Tensor& plain_validity(const core::AttendTable& table, bool causal, const char* who) {
  base::ensure(causal ? table.plain_causal() : table.open(),
               "{} does not support this attention table: it must be {} throughout", who, causal ? "causal" : "open");
  return table.valid();
}

}  // namespace mnemo::attention
